// SPDX-License-Identifier: Apache-2.0
// BPE over characters (Gemma 4, Sarvam): like byte-level BPE it has a list of merges, like SentencePiece it spells a
// space U+2581 and bytes without a character of their own <0x00> to <0xFF>. Only runs of line ends are words of their
// own.
#pragma once

#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace nanomind {

// Errors: lists of different lengths, merges of pieces that are not in the vocabulary.
Result<std::unique_ptr<Tokenizer>> make_character_bpe_tokenizer(Vocabulary vocabulary);

}  // namespace nanomind
