// SPDX-License-Identifier: Apache-2.0
// A model with its matrices in floats: what references are computed of, bit for bit.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "ops/reference/dequantize.h"

namespace nanomind::testing {

inline Result<void> write_in_floats(const std::filesystem::path& source, const std::filesystem::path& target) {
  const GgufFile file = TRY(GgufFile::open(source));
  GgufMetadata metadata;
  for (size_t i = 0; i < file.metadata().size(); ++i) metadata.add_from(file, i);
  std::vector<GgufTensorSpec> specs;
  for (const GgufTensor& tensor : file.tensors())
    specs.push_back({.name = std::string(tensor.name), .dtype = DType::f32, .shape = tensor.shape});
  GgufWriter writer = TRY(GgufWriter::create(target, metadata, specs));
  for (size_t i = 0; i < specs.size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    std::vector<float> floats(static_cast<size_t>(tensor.shape.elements()));
    // Rows are whole blocks, one after the other.
    reference::dequantize_row(*tensor.dtype, tensor.data.data(), tensor.shape.elements(), floats.data());
    TRY(writer.write(i, 0, std::as_bytes(std::span(floats))));
  }
  return writer.finish();
}

}  // namespace nanomind::testing
