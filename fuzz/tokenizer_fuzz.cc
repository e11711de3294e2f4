// SPDX-License-Identifier: Apache-2.0
// Encodes any bytes with both pre-tokenizers of byte-level BPE and with SentencePiece: what comes back is what went in.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe.h"
#include "text/sentencepiece.h"
#include "text/utf8_stream.h"

using namespace nanomind;

namespace {

void add(Vocabulary& vocabulary, std::string token, TokenType type, float score = 0) {
  vocabulary.tokens.push_back(std::move(token));
  vocabulary.types.push_back(type);
  vocabulary.scores.push_back(score);
}

// GPT-2's alphabet: every byte has one printable character.
std::unique_ptr<Tokenizer> bpe(const char* pre_tokenizer) {
  Vocabulary vocabulary;
  vocabulary.pre_tokenizer = pre_tokenizer;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const int c = visible ? byte : 0x100 + others++;
    add(vocabulary,
        c < 0x80 ? std::string(1, static_cast<char>(c))
                 : std::string{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))},
        TokenType::normal);
  }
  for (const std::string_view merge : {"a b", "ab a", "\u0120 a", "ab ab", "\u0120 \u0120", "\u0120\u0120 \u0120\u0120",
                                       "\u010a \u010a", "! !", "\u00c3 \u00a9", "1 2"}) {
    const size_t space = merge.find(' ');
    vocabulary.merges.emplace_back(merge);
    add(vocabulary, std::string(merge.substr(0, space)).append(merge.substr(space + 1)), TokenType::normal);
  }
  add(vocabulary, "<t>", TokenType::user_defined);
  add(vocabulary, "<|im_end|>", TokenType::control);
  return *make_bpe_tokenizer(std::move(vocabulary));
}

std::unique_ptr<Tokenizer> sentencepiece() {
  Vocabulary vocabulary;
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    add(vocabulary, std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">", TokenType::byte);
  }
  float score = 0;
  for (const char* piece :
       {"ab", "aba", "abab", "\u2581a", "\u2581\u2581", "\u00e9", "\u00e9\u00e9", "a", "b", "\u2581"}) {
    add(vocabulary, piece, TokenType::normal, score -= 1);
  }
  add(vocabulary, "   ", TokenType::user_defined, -1000);
  add(vocabulary, "<|im_end|>", TokenType::control);
  return *make_sentencepiece_tokenizer(std::move(vocabulary));
}

std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    CHECK(id >= 0 && id < tokenizer.vocabulary_size());
    bytes += tokenizer.bytes(id);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {bpe("smollm"), bpe("qwen2"), sentencepiece()};
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : tokenizers) {
    const auto ids = tokenizer->encode(text, ControlTokens::as_text, Beginning::omit);
    const bool has_space_sign = text.find("\u2581") != std::string::npos;  // reads as a space in SentencePiece
    if (!has_space_sign || tokenizer != tokenizers[2]) CHECK(decode(*tokenizer, ids) == text);
    decode(*tokenizer, tokenizer->encode(text, ControlTokens::recognise, Beginning::add_if_model_does));
  }
  Utf8Stream whole, bytewise;
  std::string expected = whole.push(text), got;
  expected += whole.finish();
  for (const char& byte : text) got += bytewise.push({&byte, 1});
  got += bytewise.finish();
  CHECK(got == expected);
  return 0;
}
