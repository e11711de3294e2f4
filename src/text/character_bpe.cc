// SPDX-License-Identifier: Apache-2.0
#include "text/character_bpe.h"

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "text/byte_fallback.h"
#include "text/merge_list.h"
#include "text/merge_table.h"
#include "text/spelling.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr TokenId kNoToken = -1;

class CharacterBpeTokenizer final : public VocabularyTokenizer {
 public:
  CharacterBpeTokenizer(Vocabulary given, std::vector<std::string> bytes, MergeTable merges)
      : VocabularyTokenizer(std::move(given), std::move(bytes)), merges_(std::move(merges)) {
    for (TokenId id = 0; id < vocabulary_size(); ++id) {
      const std::string& spelling = vocabulary().tokens[id];
      if (vocabulary().types[id] == TokenType::normal) normal_.try_emplace(spelling, id);
    }
  }

  // U+2581 in the text means a space, also within what is always recognised ("  ").
  std::vector<TokenId> encode(std::string_view text, ControlTokens control, Beginning beginning) const override {
    return VocabularyTokenizer::encode(replace_all(text, kEscapedSpace, " "), control, beginning);
  }

 private:
  void encode_text(std::string_view raw, Place, std::vector<TokenId>& ids) const override {
    const std::string escaped = replace_all(raw, " ", kEscapedSpace);
    const std::string_view text = escaped;
    for (size_t begin = 0; begin < text.size();) {
      const bool line_ends = text[begin] == '\n';
      const size_t end =
          std::min(line_ends ? text.find_first_not_of('\n', begin) : text.find('\n', begin), text.size());
      const std::string_view word = text.substr(begin, end - begin);
      const TokenId whole = line_ends ? find(word) : kNoToken;
      if (whole != kNoToken) {
        ids.push_back(whole);
      } else {
        encode_word(word, ids);
      }
      begin = end;
    }
  }

  void encode_word(std::string_view word, std::vector<TokenId>& ids) const {
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < word.size();) {
      const size_t length = next_utf8(word, i).length;
      symbols.push_back({i, length, find(word.substr(i, length))});
      i += length;
    }
    merge_all(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
      if (left.id == kNoToken || right.id == kNoToken) return std::nullopt;
      return merges_.find(left.id, right.id);
    });
    for (const Symbol& symbol : symbols) {
      if (symbol.size == 0) continue;
      if (symbol.id != kNoToken) {
        ids.push_back(symbol.id);
      } else {
        fallback_.spell(word.substr(symbol.offset, symbol.size), ids);
      }
    }
  }

  TokenId find(std::string_view spelling) const {
    const auto found = normal_.find(spelling);
    return found == normal_.end() ? kNoToken : found->second;
  }

  MergeTable merges_;
  TokenIds normal_;
  ByteFallback fallback_{vocabulary()};
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_character_bpe_tokenizer(Vocabulary vocabulary) {
  TRY(validate(vocabulary));
  // Merges lead to some user-defined tokens too, which converters spell with plain spaces.
  std::deque<std::string> escaped;
  TokenIds spellings = index_tokens(vocabulary);
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] != TokenType::user_defined || !vocabulary.tokens[i].contains(' ')) continue;
    spellings.try_emplace(escaped.emplace_back(replace_all(vocabulary.tokens[i], " ", kEscapedSpace)),
                          static_cast<TokenId>(i));
  }
  MergeTable merges = TRY(MergeTable::create(vocabulary, spellings));
  std::vector<std::string> bytes = TRY(decode_escaped(vocabulary));
  return std::make_unique<CharacterBpeTokenizer>(std::move(vocabulary), std::move(bytes), std::move(merges));
}

}  // namespace nanomind
