// SPDX-License-Identifier: Apache-2.0
// WordPiece (BERT and its embedding models): the text is cleaned, cut at white space, signs and Chinese characters, and
// each word is spelled by the longest pieces from its left. Pieces that begin a word begin with U+2581, as converters
// write them; BERT's own "##" is gone. Cleaning does not come back when decoding.
#pragma once

#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace nanomind {

// Errors: lists of different lengths, no unknown token.
Result<std::unique_ptr<Tokenizer>> make_wordpiece_tokenizer(Vocabulary vocabulary);

}  // namespace nanomind
