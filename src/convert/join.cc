// SPDX-License-Identifier: Apache-2.0
#include "convert/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace nanomind {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{16} << 20;

std::string_view architecture(const GgufFile& file) { return file.get_string("general.architecture").value_or(""); }

Result<void> check_pair(const GgufFile& model, const GgufFile& vision) {
  if (architecture(model) == "clip")
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} is a vision file; give the language model first.", model.subject()));
  if (architecture(vision) != "clip")
    return fail(ErrorCode::invalid_argument, fmt::format("{} is no vision file (architecture {}, not clip).",
                                                         vision.subject(), architecture(vision)));
  for (const GgufTensor& tensor : vision.tensors()) {
    if (model.tensor(tensor.name) != nullptr)
      return fail(ErrorCode::invalid_argument,
                  fmt::format("{} has a tensor {} already; is it joined?", model.subject(), tensor.name));
  }
  return {};
}

void add_new(const GgufFile& file, GgufMetadata& metadata) {
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    if (!metadata.has(file.metadata()[i].first)) metadata.add_from(file, i);
  }
}

}  // namespace

Result<uint64_t> join_files(const std::filesystem::path& model, const std::filesystem::path& vision,
                            const std::filesystem::path& target) {
  const GgufFile files[] = {TRY(GgufFile::open(model)), TRY(GgufFile::open(vision))};
  TRY(check_pair(files[0], files[1]));
  GgufMetadata metadata;
  std::vector<const GgufTensor*> tensors;
  std::vector<GgufTensorSpec> specs;
  for (const GgufFile& file : files) {
    add_new(file, metadata);
    for (const GgufTensor& tensor : file.tensors()) {
      if (!tensor.dtype) {
        return fail(ErrorCode::unsupported,
                    fmt::format("{}: the tensor {} has the type {}, which cannot be read.", file.subject(), tensor.name,
                                gguf_type_name(tensor.type_number)));
      }
      tensors.push_back(&tensor);
      specs.push_back({std::string(tensor.name), *tensor.dtype, tensor.shape});
    }
  }
  GgufWriter writer = TRY(GgufWriter::create(target, metadata, specs));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> data = tensors[i]->data;
    for (uint64_t offset = 0; offset < data.size(); offset += kCopyBytes)
      TRY(writer.write(i, offset, data.subspan(offset, std::min<uint64_t>(kCopyBytes, data.size() - offset))));
  }
  const uint64_t bytes = writer.file_bytes();
  TRY(writer.finish());
  return bytes;
}

}  // namespace nanomind
