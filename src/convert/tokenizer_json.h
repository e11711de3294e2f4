// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of the tokenizers library as a list of tokens with their kinds, and its merges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "convert/checkpoint.h"
#include "text/vocabulary.h"

namespace nanomind {

struct TokenList {
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<float> scores;  // of SentencePiece and unigram models, otherwise empty

  // -1 when there is none.
  int64_t find(std::string_view spelling) const;
  // "[PAD7]" and so on, unused, up to `count` tokens.
  void fill_up(int64_t count);
};

// The model's vocabulary and the added tokens, each at its id; `limit` is the number of ids that the model has.
Result<TokenList> read_token_list(const Config& tokenizer, int64_t limit);

// A token that was added to a finished vocabulary.
struct AddedToken {
  int64_t id = 0;
  std::string spelling;
  bool special = false;
};
// Puts it at its id; `source` is named in errors.
Result<void> add_token(const Config& source, AddedToken token, int64_t limit, TokenList& list);

// "left right", best first. Both spellings are known: one text, or a pair.
Result<std::vector<std::string>> read_merges(const Config& tokenizer);

// Makes `list` that of a SentencePiece model of BPE with bytes: byte tokens get their type, and every token that merges
// make the score by which these are done in the same order.
void score_by_merges(const std::vector<std::string>& merges, TokenList& list);

}  // namespace nanomind
