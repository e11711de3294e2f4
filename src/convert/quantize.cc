// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "convert/gguf_copy.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "format/packed_image.h"
#include "ops/reference/dequantize.h"

namespace nanomind {
namespace {

double bits(DType dtype) { return 8.0 * traits(dtype).block_bytes / traits(dtype).block_columns; }

GgufMetadata copy_metadata(const GgufFile& file, const Mix& mix) {
  GgufMetadata metadata;
  add_metadata(file, metadata);
  metadata.add("general.quantization_version", uint32_t{2});
  metadata.add("general.file_type", file_type_of(mix));
  return metadata;
}

Result<void> requantize(const GgufTensor& tensor, const GgufTensorSpec& spec, GgufWriter& writer, size_t index,
                        const WriteOptions& options) {
  const int64_t columns = tensor.shape.columns();
  const size_t bytes = row_bytes(*tensor.dtype, static_cast<size_t>(columns));
  const ReadRows read = [&](int64_t first, int64_t count, std::span<float> out) {
    for (int64_t r = 0; r < count; ++r) {
      reference::dequantize_row(*tensor.dtype, tensor.data.data() + static_cast<size_t>(first + r) * bytes, columns,
                                out.data() + r * columns);
    }
  };
  return write_rows(writer, index, spec, read, options);
}

Result<void> write_tensor(const GgufTensor& tensor, const GgufTensorSpec& spec, GgufWriter& writer, size_t index,
                          const WriteOptions& options) {
  if (spec.dtype == tensor.dtype) return copy_tensor(tensor, writer, index);
  return requantize(tensor, spec, writer, index, options);
}

// What an unfinished file was made of: the source, as side files recognise theirs, and the quantisers.
Result<Sha256Digest> identity_of(const GgufFile& file, const std::filesystem::path& source) {
  constexpr uint64_t kQuantisers = 1;  // counts changes of what they write
  std::error_code error;
  const auto time = std::filesystem::last_write_time(source, error).time_since_epoch().count();
  if (error)
    return fail(ErrorCode::io, fmt::format("The time of {} cannot be read: {}.", source.string(), error.message()));
  const uint64_t numbers[] = {kQuantisers, file.size_bytes(), static_cast<uint64_t>(time)};
  Sha256 hash;
  hash.update(std::as_bytes(std::span(numbers)));
  const Sha256Digest sample = sample_digest(file);
  hash.update(std::as_bytes(std::span(sample)));
  return hash.finish();
}

// What is done of an unfinished file stays for the next time, unless that would fail alike.
Error give_up(GgufWriter& writer, size_t tensors_done, Error error) {
  if (error.code == ErrorCode::corrupt || error.code == ErrorCode::unsupported) {
    writer.discard();
    return error;
  }
  const bool is_kept = writer.checkpoint(tensors_done).has_value() && tensors_done > 0;
  if (error.code == ErrorCode::cancelled && is_kept)
    error.message = "Stopped on request. The same command goes on where it stopped.";
  return error;
}

// A loss that the source has already is not undone, and a further one is added.
void warn_of_coarse_sources(const GgufFile& file, std::span<const GgufTensorSpec> specs, Quantized& result) {
  std::set<std::string_view> coarse;
  for (size_t i = 0; i < specs.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    if (tensor.dtype != specs[i].dtype && bits(*tensor.dtype) < 8) coarse.insert(traits(*tensor.dtype).name);
  }
  if (coarse.empty()) return;
  std::string names;
  for (const std::string_view name : coarse) names += (names.empty() ? "" : ", ") + std::string(name);
  result.warnings.push_back(fmt::format(
      "{} is quantised already ({}); what was lost there stays lost. Start from F16, BF16 or Q8_0 where you can.",
      file.subject(), names));
}

}  // namespace

Result<Quantized> quantize_file(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TypeChoice& choice, const WriteOptions& options) {
  const GgufFile file = TRY(GgufFile::open(source));
  const auto types = TRY(choose_types(file, choice));
  std::vector<GgufTensorSpec> specs;
  for (size_t i = 0; i < types.size(); ++i) {
    specs.push_back(TRY(spec_of(file, file.tensors()[i])));
    if (types[i]) specs.back().dtype = *types[i];
  }
  Quantized result{.source_bytes = file.size_bytes()};
  warn_of_coarse_sources(file, specs, result);
  const Sha256Digest identity = TRY(identity_of(file, source));
  GgufWriter writer = TRY(GgufWriter::resume(target, copy_metadata(file, choice.mix), specs, identity));
  result.taken_up = writer.tensors_done();
  uint64_t done = 0, unsafe = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const uint64_t bytes = specs[i].size_bytes();
    if (specs[i].dtype != file.tensors()[i].dtype) ++result.changed;
    done += bytes;
    if (i < result.taken_up) continue;
    if (auto written = write_tensor(file.tensors()[i], specs[i], writer, i, options); !written)
      return std::unexpected(give_up(writer, i, std::move(written).error()));
    file.release(file.tensors()[i].data);
    if (options.progress) options.progress(done, writer.file_bytes());
    unsafe += bytes;
    if (unsafe < options.checkpoint_bytes) continue;
    TRY(writer.checkpoint(i + 1));
    unsafe = 0;
  }
  result.bytes = writer.file_bytes();
  TRY(writer.finish());
  return result;
}

}  // namespace nanomind
