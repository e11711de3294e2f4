// SPDX-License-Identifier: Apache-2.0
// Reads the files of a published tokenizer (tokenizer.json, tokenizer_config.json, tokenizer.model,
// generation_config.json, chat_template.jinja) and says them in the keys of GGUF.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "convert/checkpoint.h"
#include "format/gguf_writer.h"

namespace nanomind {

// Adds tokenizer.*; `vocabulary` is the number of rows of the embedding, to which the list of tokens is filled up.
// Errors: missing or damaged files, unknown kinds of tokenizer or pre-tokenizer, more tokens than rows.
Result<void> add_vocabulary(const Checkpoint& checkpoint, int64_t vocabulary, GgufMetadata& metadata);

}  // namespace nanomind
