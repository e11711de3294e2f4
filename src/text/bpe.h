// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM): text is cut into words, words into bytes, and neighbours are merged in
// the order in which training learnt the merges. Any bytes in come back out, except bytes that the vocabulary lacks.
#pragma once

#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace nanomind {

// Errors: an unknown pre-tokenizer, lists of different lengths, merges of pieces that are not in the vocabulary.
Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(Vocabulary vocabulary);

}  // namespace nanomind
