// SPDX-License-Identifier: Apache-2.0
// Pictures that an engine has seen: their rows, and the tokens that stand for these in prompts. Such tokens are below 0
// and no two pictures share one, so that prefixes with pictures are told apart as those of text are.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "text/tokenizer.h"

namespace nanomind {

class Pictures {
 public:
  // The pictures used last are kept, within so many bytes of rows.
  explicit Pictures(size_t most_bytes) : most_bytes_(most_bytes) {}

  // The tokens of a picture whose rows are here, by the SHA-256 of its file; empty for others.
  std::vector<TokenId> find(const Sha256Digest& source);
  // Keeps rows [tokens, width] of a picture, which has the same tokens whenever it comes again.
  std::vector<TokenId> add(const Sha256Digest& source, std::vector<float> rows, int64_t width);
  // Appends the rows of those of `tokens` that stand for some. invalid_argument when one is not here any more.
  Result<void> append_rows(std::span<const TokenId> tokens, std::vector<const float*>& rows) const;

 private:
  struct Picture {
    Sha256Digest source;
    std::vector<float> rows;
    int64_t width = 0;
    TokenId first = 0;  // its row i has token first - i
    int64_t count() const { return static_cast<int64_t>(rows.size()) / width; }
  };
  static std::vector<TokenId> tokens(const Picture& picture);
  const float* row(TokenId token) const;  // null when it is not here

  size_t most_bytes_, bytes_ = 0;
  std::list<Picture> pictures_;                                    // the one used last first
  std::map<TokenId, std::list<Picture>::iterator> by_last_token_;  // from the last token of each
  std::map<Sha256Digest, TokenId> first_tokens_;                   // of all that were ever here
  TokenId next_ = -1;
};

}  // namespace nanomind
