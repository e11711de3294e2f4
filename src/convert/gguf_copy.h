// SPDX-License-Identifier: Apache-2.0
// What goes from one GGUF file to another as it is.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace nanomind {

// Adds the file's entries that are not there yet, but for what tensors are aligned to, which a writer decides anew.
void add_metadata(const GgufFile& file, GgufMetadata& metadata);

// What a writer is told of a tensor. unsupported for a type that cannot be read.
Result<GgufTensorSpec> spec_of(const GgufFile& file, const GgufTensor& tensor);

// Writes the tensor's bytes as tensor `index`. Errors: no_space, io.
Result<void> copy_tensor(const GgufTensor& tensor, GgufWriter& writer, size_t index);

}  // namespace nanomind
