// SPDX-License-Identifier: Apache-2.0
// How SentencePiece's kind of tokenizers spells a character that has no token: by byte tokens <0x00> to <0xFF>.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "text/spelling.h"
#include "text/vocabulary.h"

namespace nanomind {

class ByteFallback {
 public:
  explicit ByteFallback(const Vocabulary& vocabulary) : unknown_(vocabulary.unknown) {
    bytes_.fill(kNone);
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (vocabulary.types[id] != TokenType::byte) continue;
      if (const auto byte = parse_byte_token(vocabulary.tokens[id])) bytes_[*byte] = static_cast<TokenId>(id);
    }
  }

  // Appends the character's bytes where there are tokens for all of them, otherwise the unknown token, if there is one.
  void spell(std::string_view character, std::vector<TokenId>& ids) const {
    const auto token = [&](char c) { return bytes_[static_cast<uint8_t>(c)]; };
    if (std::ranges::any_of(character, [&](char c) { return token(c) == kNone; })) {
      if (unknown_) ids.push_back(*unknown_);
      return;
    }
    for (const char c : character) ids.push_back(token(c));
  }

 private:
  static constexpr TokenId kNone = -1;
  std::array<TokenId, 256> bytes_{};
  std::optional<TokenId> unknown_;
};

}  // namespace nanomind
