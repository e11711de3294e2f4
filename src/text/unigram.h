// SPDX-License-Identifier: Apache-2.0
// SentencePiece's unigram language model (T5, XLM-RoBERTa, BGE-M3): of all ways to cut the normalised text into pieces
// the one whose scores sum up highest (Kudo 2018, arXiv 1804.10959). Normalisation does not come back when decoding.
#pragma once

#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace nanomind {

// Errors: lists of different lengths, scores that are not numbers, a truncated charsmap, no unknown token.
Result<std::unique_ptr<Tokenizer>> make_unigram_tokenizer(Vocabulary vocabulary);

}  // namespace nanomind
