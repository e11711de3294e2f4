// SPDX-License-Identifier: Apache-2.0
#include "convert/join.h"

#include <fmt/format.h>

#include <vector>

#include "convert/gguf_copy.h"
#include "format/gguf_writer.h"

namespace nanomind {
namespace {

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

}  // namespace

Result<uint64_t> join_files(const std::filesystem::path& model, const std::filesystem::path& vision,
                            const std::filesystem::path& target, const PairCheck& check) {
  const GgufFile files[] = {TRY(GgufFile::open(model)), TRY(GgufFile::open(vision))};
  TRY(check_pair(files[0], files[1]));
  TRY(check(files[0], files[1]));
  GgufMetadata metadata;
  std::vector<const GgufTensor*> tensors;
  std::vector<GgufTensorSpec> specs;
  for (const GgufFile& file : files) {
    add_metadata(file, metadata);
    for (const GgufTensor& tensor : file.tensors()) {
      specs.push_back(TRY(spec_of(file, tensor)));
      tensors.push_back(&tensor);
    }
  }
  GgufWriter writer = TRY(GgufWriter::create(target, metadata, specs));
  for (size_t i = 0; i < tensors.size(); ++i) TRY(copy_tensor(*tensors[i], writer, i));
  const uint64_t bytes = writer.file_bytes();
  TRY(writer.finish());
  return bytes;
}

}  // namespace nanomind
