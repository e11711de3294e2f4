// SPDX-License-Identifier: Apache-2.0
// From a model as its publisher lays it out (config.json, tokenizer.json, safetensors) to one GGUF file, with the keys
// and names that all programs of this format read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "convert/row_writer.h"
#include "tensor/dtype.h"

namespace nanomind {

struct Converted {
  std::string architecture;
  std::string name;
  DType dtype = DType::f16;  // of the matrices
  size_t tensors = 0;
  uint64_t bytes = 0;
};

// `source`: a folder, or a .safetensors file or index in one. `dtype`: f32, f16, bf16 or q8_0 for the matrices; without
// it bf16 where the checkpoint has it, otherwise f16. Vectors and a few small matrices are floats always. The file
// appears when it is complete. Errors: not_found, corrupt, unsupported (families, tokenizers, tensors that are not
// known), no_space, io, cancelled.
Result<Converted> convert_checkpoint(const std::filesystem::path& source, const std::filesystem::path& target,
                                     std::optional<DType> dtype, const WriteOptions& options);

// general.file_type for files whose matrices mostly have this type.
uint32_t gguf_file_type(DType dtype);

}  // namespace nanomind
