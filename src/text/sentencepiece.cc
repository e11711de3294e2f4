// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "text/byte_fallback.h"
#include "text/merge_list.h"
#include "text/spelling.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr TokenId kNoToken = -1;

class SentencePieceTokenizer final : public VocabularyTokenizer {
 public:
  SentencePieceTokenizer(Vocabulary given, std::vector<std::string> bytes)
      : VocabularyTokenizer(std::move(given), std::move(bytes)) {
    for (TokenId id = 0; id < vocabulary_size(); ++id) {
      const std::string& spelling = vocabulary().tokens[id];
      const TokenType type = vocabulary().types[id];
      if (type == TokenType::normal) {
        pieces_.try_emplace(spelling, id);
        longest_piece_ = std::max(longest_piece_, spelling.size());
      }
    }
  }

  // U+2581 in the text means a space to the library too, also within what is always recognised ("  ").
  std::vector<TokenId> encode(std::string_view text, ControlTokens control, Beginning beginning) const override {
    return VocabularyTokenizer::encode(replace_all(text, kEscapedSpace, " "), control, beginning);
  }

 private:
  void encode_text(std::string_view raw, Place place, std::vector<TokenId>& ids) const override {
    std::string text = replace_all(raw, " ", kEscapedSpace);
    if (vocabulary().adds_space_prefix && place == Place::start) text.insert(0, kEscapedSpace);
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < text.size();) {
      const size_t length = next_utf8(text, i).length;
      symbols.push_back({i, length, find_piece(std::string_view(text).substr(i, length))});
      i += length;
    }
    merge_all(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
      const TokenId id = find_piece(std::string_view(text).substr(left.offset, left.size + right.size));
      if (id == kNoToken) return std::nullopt;
      return Merge{-static_cast<double>(vocabulary().scores[id]), id};
    });
    for (const Symbol& symbol : symbols) {
      if (symbol.size == 0) continue;
      if (symbol.id != kNoToken) {
        ids.push_back(symbol.id);
      } else {
        fallback_.spell(std::string_view(text).substr(symbol.offset, symbol.size), ids);
      }
    }
  }

  TokenId find_piece(std::string_view text) const {
    if (text.size() > longest_piece_) return kNoToken;
    const auto piece = pieces_.find(text);
    return piece == pieces_.end() ? kNoToken : piece->second;
  }

  std::unordered_map<std::string_view, TokenId> pieces_;  // views into the vocabulary
  size_t longest_piece_ = 0;                              // bytes
  ByteFallback fallback_{vocabulary()};
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(Vocabulary vocabulary) {
  TRY(validate(vocabulary));
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    return fail(ErrorCode::corrupt, fmt::format("The tokenizer has {} tokens but {} scores.", vocabulary.tokens.size(),
                                                vocabulary.scores.size()));
  }
  if (std::ranges::any_of(vocabulary.scores, [](float score) { return std::isnan(score); })) {
    return fail(ErrorCode::corrupt, "A score of the tokenizer is not a number.");
  }
  std::vector<std::string> bytes = TRY(decode_escaped(vocabulary));
  return std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), std::move(bytes));
}

}  // namespace nanomind
