// SPDX-License-Identifier: Apache-2.0
// From a model as its publisher lays it out (config.json, tokenizer.json, safetensors) to GGUF files, with the keys and
// names that all programs of this format read: the language model, and beside it what the model sees with.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/row_writer.h"
#include "tensor/dtype.h"

namespace nanomind {

enum class Halves {
  all,     // the language model, and where the checkpoint sees, a vision file beside it
  text,    // the language model alone
  vision,  // what it sees with alone
};

struct ConvertChoice {
  // f32, f16, bf16 or q8_0 for the matrices; without it bf16 where the checkpoint has it, otherwise f16. Vectors and a
  // few small matrices are floats always; of vision files also tables of positions and, but for f16, the first filters.
  std::optional<DType> dtype = {};
  Halves halves = Halves::all;
};

struct ConvertedFile {
  std::filesystem::path path;
  std::string architecture;
  size_t tensors = 0;
  uint64_t bytes = 0;
};

struct Converted {
  std::string name;
  DType dtype = DType::f16;           // of the matrices
  std::vector<ConvertedFile> files;   // the language model first
  std::vector<std::string> warnings;  // for people, full sentences
};

// Where the vision file of a model that is written to `target` goes: "mmproj-" and its name.
std::filesystem::path vision_path(const std::filesystem::path& target);

// `source`: a folder, or a .safetensors file or index in one. `target`: the one file, or of Halves::all the language
// model's, and vision_path(target) the other's. Files appear when all are complete. Of a model whose eyes are not known
// Halves::all writes the language model, with a warning. Errors: not_found, corrupt, unsupported (families, tokenizers,
// tensors that are not known, a vision half that is not there), no_space, io, cancelled.
Result<Converted> convert_checkpoint(const std::filesystem::path& source, const std::filesystem::path& target,
                                     const ConvertChoice& choice, const WriteOptions& options);

// general.file_type for files whose matrices mostly have this type.
uint32_t gguf_file_type(DType dtype);

}  // namespace nanomind
