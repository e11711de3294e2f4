// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "text/merge_list.h"
#include "text/merge_table.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr TokenId kNoToken = -1;

// GPT-2 spells each byte as one printable character: visible Latin-1 as itself, the other 68 bytes as U+0100 and up.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(kNone);
    int others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      code_point_of_[byte] = visible ? byte : 0x100 + others++;
      byte_of_[code_point_of_[byte]] = byte;
    }
  }

  std::string spelling(int byte) const {
    const int code_point = code_point_of_[byte];
    if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
    return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
  }

  // The bytes that a spelling stands for; characters outside the alphabet stand for themselves.
  std::string decode(std::string_view token) const {
    std::string bytes;
    for (size_t i = 0; i < token.size();) {
      const size_t length = next_utf8(token, i).length;
      const auto first = static_cast<uint8_t>(token[i]);
      const size_t code_point = length == 2   ? (first & 0x1f) << 6 | (static_cast<uint8_t>(token[i + 1]) & 0x3f)
                                : length == 1 ? first
                                              : SIZE_MAX;
      if (code_point < byte_of_.size() && byte_of_[code_point] != kNone) {
        bytes += static_cast<char>(byte_of_[code_point]);
      } else {
        bytes.append(token, i, length);
      }
      i += length;
    }
    return bytes;
  }

 private:
  static constexpr int kNone = -1;

  std::array<int, 256> code_point_of_{};
  std::array<int, 0x100 + 68> byte_of_{};
};

std::vector<std::string> decode_all(const Vocabulary& vocabulary, const ByteAlphabet& alphabet) {
  std::vector<std::string> bytes(vocabulary.tokens.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (vocabulary.types[i] == TokenType::normal) bytes[i] = alphabet.decode(vocabulary.tokens[i]);
    if (vocabulary.types[i] == TokenType::user_defined) bytes[i] = vocabulary.tokens[i];
  }
  return bytes;
}

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  BpeTokenizer(Vocabulary vocabulary, std::vector<std::string> bytes, std::array<TokenId, 256> byte_tokens,
               MergeTable merges, PreTokenizer pre_tokenizer)
      : VocabularyTokenizer(std::move(vocabulary), std::move(bytes)),
        byte_tokens_(byte_tokens),
        merges_(std::move(merges)),
        pre_tokenizer_(std::move(pre_tokenizer)) {
    if (!pre_tokenizer_.takes_whole_words()) return;
    for (TokenId id = 0; id < vocabulary_size(); ++id) {
      if (this->vocabulary().types[id] == TokenType::normal) whole_words_.try_emplace(this->bytes(id), id);
    }
  }

 private:
  void encode_text(std::string_view text, Place, std::vector<TokenId>& ids) const override {
    std::vector<Symbol> symbols;
    for (const std::string_view word : pre_tokenizer_.split(text)) {
      if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
        ids.push_back(whole->second);
        continue;
      }
      symbols.clear();
      for (size_t i = 0; i < word.size(); ++i) {
        const TokenId id = byte_tokens_[static_cast<uint8_t>(word[i])];
        // A byte that training never saw has no token; nothing can stand for it.
        if (id != kNoToken) symbols.push_back({i, 1, id});
      }
      merge_all(symbols, [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
      for (const Symbol& symbol : symbols) {
        if (symbol.size > 0) ids.push_back(symbol.id);
      }
    }
  }

  std::array<TokenId, 256> byte_tokens_;
  MergeTable merges_;
  PreTokenizer pre_tokenizer_;
  TokenIds whole_words_;  // by their bytes; empty unless the rule asks for it
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(Vocabulary vocabulary) {
  TRY(validate(vocabulary));
  PreTokenizer pre_tokenizer = TRY(PreTokenizer::create(vocabulary.pre_tokenizer));
  const TokenIds ids = index_tokens(vocabulary);
  MergeTable merges = TRY(MergeTable::create(vocabulary, ids));
  const ByteAlphabet alphabet;
  std::array<TokenId, 256> byte_tokens{};
  for (int b = 0; b < 256; ++b) {
    const auto id = ids.find(alphabet.spelling(b));
    byte_tokens[b] = id == ids.end() ? kNoToken : id->second;
  }
  std::vector<std::string> bytes = decode_all(vocabulary, alphabet);
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(bytes), byte_tokens, std::move(merges),
                                        std::move(pre_tokenizer));
}

}  // namespace nanomind
