// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "ops/reference/dequantize.h"

namespace nanomind {
namespace {

constexpr uint64_t kCopyBytes = 8 << 20;

double bits(DType dtype) { return 8.0 * traits(dtype).block_bytes / traits(dtype).block_columns; }

GgufMetadata copy_metadata(const GgufFile& file, const Mix& mix) {
  GgufMetadata metadata;
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    // What is aligned is decided anew.
    if (file.metadata()[i].first != "general.alignment") metadata.add_from(file, i);
  }
  metadata.add("general.quantization_version", uint32_t{2});
  metadata.add("general.file_type", file_type_of(mix));
  return metadata;
}

Result<void> copy_tensor(const GgufTensor& tensor, GgufWriter& writer, size_t index) {
  for (uint64_t offset = 0; offset < tensor.data.size(); offset += kCopyBytes) {
    const uint64_t size = std::min<uint64_t>(kCopyBytes, tensor.data.size() - offset);
    TRY(writer.write(index, offset, tensor.data.subspan(offset, size)));
  }
  return {};
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
    const GgufTensor& tensor = file.tensors()[i];
    if (!tensor.dtype) {
      return fail(ErrorCode::unsupported, fmt::format("{}: the tensor {} has the type {}, which cannot be read.",
                                                      file.subject(), tensor.name, gguf_type_name(tensor.type_number)));
    }
    specs.push_back({std::string(tensor.name), types[i].value_or(*tensor.dtype), tensor.shape});
  }
  Quantized result{.source_bytes = file.size_bytes()};
  warn_of_coarse_sources(file, specs, result);
  GgufWriter writer = TRY(GgufWriter::create(target, copy_metadata(file, choice.mix), specs));
  uint64_t done = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    if (specs[i].dtype == *tensor.dtype) {
      TRY(copy_tensor(tensor, writer, i));
    } else {
      TRY(requantize(tensor, specs[i], writer, i, options));
      ++result.changed;
    }
    file.release(tensor.data);
    done += specs[i].size_bytes();
    if (options.progress) options.progress(done, writer.file_bytes());
  }
  result.bytes = writer.file_bytes();
  TRY(writer.finish());
  return result;
}

}  // namespace nanomind
