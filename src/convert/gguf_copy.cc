// SPDX-License-Identifier: Apache-2.0
#include "convert/gguf_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace nanomind {
namespace {

constexpr uint64_t kCopyBytes = 8 << 20;

}  // namespace

void add_metadata(const GgufFile& file, GgufMetadata& metadata) {
  for (size_t i = 0; i < file.metadata().size(); ++i) {
    const std::string_view key = file.metadata()[i].first;
    if (key != "general.alignment" && !metadata.has(key)) metadata.add_from(file, i);
  }
}

Result<GgufTensorSpec> spec_of(const GgufFile& file, const GgufTensor& tensor) {
  if (!tensor.dtype) {
    return fail(ErrorCode::unsupported, fmt::format("{}: the tensor {} has the type {}, which cannot be read.",
                                                    file.subject(), tensor.name, gguf_type_name(tensor.type_number)));
  }
  return GgufTensorSpec{std::string(tensor.name), *tensor.dtype, tensor.shape};
}

Result<void> copy_tensor(const GgufTensor& tensor, GgufWriter& writer, size_t index) {
  for (uint64_t offset = 0; offset < tensor.data.size(); offset += kCopyBytes) {
    const uint64_t size = std::min<uint64_t>(kCopyBytes, tensor.data.size() - offset);
    TRY(writer.write(index, offset, tensor.data.subspan(offset, size)));
  }
  return {};
}

}  // namespace nanomind
