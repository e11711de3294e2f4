// SPDX-License-Identifier: Apache-2.0
// Writes a GGUF file again with other types of weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/mix.h"
#include "convert/row_writer.h"

namespace nanomind {

struct Quantized {
  uint64_t source_bytes = 0, bytes = 0;
  size_t changed = 0;                 // tensors
  size_t taken_up = 0;                // tensors that an earlier, interrupted call had written
  std::vector<std::string> warnings;  // for people, full sentences
};

// Metadata is copied but for general.file_type. Bytes do not depend on the number of threads. Tensors that have the
// type already are copied as they are. Errors: not_found, corrupt, unsupported (a type that cannot be read),
// invalid_argument (rules), no_space, io, cancelled; `target` then is as before, and `<target>.partial` holds the
// tensors that are done, which the next call with the same source and choice takes up.
Result<Quantized> quantize_file(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TypeChoice& choice, const WriteOptions& options);

}  // namespace nanomind
