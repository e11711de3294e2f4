// SPDX-License-Identifier: Apache-2.0
#include "convert/row_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "convert/quantize_row.h"

namespace nanomind {
namespace {

constexpr int64_t kPieceElements = 1 << 18;
constexpr int64_t kStepPieces = 16;  // between two looks at the stop token
constexpr float kLargestHalf = 65504.0F;

Result<void> check_numbers(std::span<const float> values, const GgufTensorSpec& spec) {
  float largest = 0;
  bool is_finite = true;
  for (const float value : values) {
    is_finite &= std::isfinite(value);
    largest = std::max(largest, std::abs(value));
  }
  if (!is_finite) {
    return fail(ErrorCode::corrupt, fmt::format("The tensor {} has elements that are no finite numbers. Download the "
                                                "model again, or choose another.",
                                                spec.name));
  }
  if (spec.dtype == DType::f16 && largest > kLargestHalf) {
    return fail(ErrorCode::unsupported,
                fmt::format("The tensor {} has elements that are too large for F16. Use --type bf16.", spec.name));
  }
  return {};
}

}  // namespace

Result<void> write_rows(GgufWriter& writer, size_t index, const GgufTensorSpec& spec, const ReadRows& read,
                        const WriteOptions& options) {
  const int64_t rows = spec.shape.rows(), columns = spec.shape.columns();
  const size_t bytes = row_bytes(spec.dtype, static_cast<size_t>(columns));
  const int64_t piece = std::max<int64_t>(1, kPieceElements / columns), pieces = (rows + piece - 1) / piece;
  std::mutex mutex;
  std::optional<Error> error;
  const auto write_piece = [&](int64_t i) -> Result<void> {
    const int64_t first = i * piece, count = std::min(piece, rows - first);
    std::vector<float> values(static_cast<size_t>(count * columns));
    std::vector<std::byte> out(static_cast<size_t>(count) * bytes);
    read(first, count, values);
    TRY(check_numbers(values, spec));
    for (int64_t r = 0; r < count; ++r)
      quantize_row(spec.dtype, values.data() + r * columns, columns, out.data() + static_cast<size_t>(r) * bytes);
    return writer.write(index, static_cast<uint64_t>(first) * bytes, out);
  };
  for (int64_t begin = 0; begin < pieces; begin += kStepPieces) {
    if (options.stop.stop_requested()) return fail(ErrorCode::cancelled, "Stopped on request; nothing was written.");
    options.pool.for_each(std::min(kStepPieces, pieces - begin), [&](int64_t i) {
      if (auto result = write_piece(begin + i); !result) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::move(result).error();
      }
    });
    if (error) return std::unexpected(*std::move(error));
  }
  return {};
}

}  // namespace nanomind
