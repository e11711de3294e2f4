// SPDX-License-Identifier: Apache-2.0
#include "runtime/weight_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/half.h"
#include "tensor/packed.h"
#include "tensor/packed_layout.h"

namespace nanomind {

Result<WeightBinding> WeightBinding::bind(const Program& program, const GgufFile& file, const PackedWeights& packed) {
  WeightBinding binding;
  for (const WeightInfo& info : program.weights) {
    if (info.shape.rank == 1) {
      const auto all = TRY(binding.vector(*file.tensor(info.name)));
      binding.views_.push_back(all.subspan(static_cast<size_t>(info.first_row) * sizeof(float),
                                           static_cast<size_t>(info.shape.elements()) * sizeof(float)));
      continue;
    }
    const PackedMatrix* matrix = packed.find(info.name);
    if (matrix == nullptr)
      return fail(ErrorCode::corrupt,
                  fmt::format("Tensor {} has no packed form; run `nanomind pack` again.", info.name));
    if (info.transposed) {
      binding.views_.push_back(binding.transposed(info, *file.tensor(info.name)->dtype, matrix->bytes));
      continue;
    }
    const size_t before = packed_bytes(info.dtype, info.first_row, info.shape.columns());
    binding.views_.push_back(
        matrix->bytes.subspan(before, packed_bytes(info.dtype, info.shape.rows(), info.shape.columns())));
  }
  // Nothing of the file is needed any more, and with large pages a vector here and there has mapped much of it.
  for (const GgufTensor& tensor : file.tensors()) file.release(tensor.data);
  return binding;
}

std::span<const std::byte> WeightBinding::transposed(const WeightInfo& info, DType dtype,
                                                     std::span<const std::byte> packed) {
  const int64_t rows = info.shape.rows(), columns = info.shape.columns();
  std::vector<float> stored(static_cast<size_t>(rows)), turned(static_cast<size_t>(rows * columns));
  for (int64_t c = 0; c < columns; ++c) {
    packed_row_to_float(dtype, packed, c, rows, stored.data());
    for (int64_t r = 0; r < rows; ++r) turned[static_cast<size_t>(r * columns + c)] = stored[static_cast<size_t>(r)];
  }
  const size_t size = packed_bytes(DType::f32, rows, columns), group = packed_group_bytes(DType::f32, columns);
  packed_here_.emplace_back(static_cast<std::byte*>(::operator new[](size, kAlign)));
  const std::span<const std::byte> source = std::as_bytes(std::span(turned));
  for (int64_t r = 0; r < rows; r += kGroupRows) {
    pack_group(DType::f32, source.data() + static_cast<size_t>(r * columns) * sizeof(float),
               static_cast<int>(std::min<int64_t>(kGroupRows, rows - r)), columns,
               packed_here_.back().get() + static_cast<size_t>(r / kGroupRows) * group);
  }
  return {packed_here_.back().get(), size};
}

Result<std::span<const std::byte>> WeightBinding::vector(const GgufTensor& tensor) {
  const DType dtype = *tensor.dtype;
  const auto n = static_cast<size_t>(tensor.shape.elements());
  auto owned = std::make_unique<float[]>(n);
  for (size_t i = 0; i < n; ++i) {
    uint16_t half = 0;
    switch (dtype) {
      case DType::f32: std::memcpy(&owned[i], tensor.data.data() + 4 * i, 4); break;
      case DType::f16: std::memcpy(&half, tensor.data.data() + 2 * i, 2), owned[i] = float_from_half(half); break;
      case DType::bf16: std::memcpy(&half, tensor.data.data() + 2 * i, 2), owned[i] = float_from_bf16(half); break;
      default:
        return fail(ErrorCode::unsupported,
                    fmt::format("Tensor {} is a vector of type {}; F32, F16 and BF16 are supported.", tensor.name,
                                traits(dtype).name));
    }
  }
  converted_.push_back(std::move(owned));
  return std::as_bytes(std::span(converted_.back().get(), n));
}

}  // namespace nanomind
