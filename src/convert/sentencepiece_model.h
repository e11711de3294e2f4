// SPDX-License-Identifier: Apache-2.0
// Reads a SentencePiece model (tokenizer.model, a protocol buffer of the message ModelProto): its pieces with scores
// and kinds, and whether a space is put before the text.
#pragma once

#include <string_view>

#include "base/result.h"
#include "convert/tokenizer_json.h"

namespace nanomind {

struct SentencePieceModel {
  enum class Kind { unigram = 1, bpe = 2, word = 3, character = 4 };
  Kind kind = Kind::unigram;
  TokenList pieces;
  bool adds_space_prefix = true;
};

// `subject` names the bytes in errors.
Result<SentencePieceModel> read_sentencepiece_model(std::string_view bytes, std::string_view subject);

}  // namespace nanomind
