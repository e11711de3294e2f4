// SPDX-License-Identifier: Apache-2.0
// SentencePiece BPE (Gemma, Llama 2): spaces are U+2581, neighbours merge by the score of what they become, and what
// has no token is spelled in byte tokens <0x00> to <0xFF>.
#pragma once

#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace nanomind {

// Errors: lists of different lengths, scores that are not numbers.
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(Vocabulary vocabulary);

}  // namespace nanomind
