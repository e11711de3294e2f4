// SPDX-License-Identifier: Apache-2.0
// Faults that users of other runtimes have met (docs/field-cases.md): none of them here, with any kind of tokenizer.
// Long runs are tested beside each kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "text/bpe.h"
#include "text/character_bpe.h"
#include "text/sentencepiece.h"
#include "text/test_data.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

constexpr TokenId kUnknown = 0;  // of small-sentencepiece and small-unigram

std::map<std::string, std::unique_ptr<Tokenizer>> all_kinds() {
  std::map<std::string, std::unique_ptr<Tokenizer>> kinds;
  Vocabulary vocabulary = read_vocabulary("small-qwen2");
  vocabulary.pre_tokenizer = "qwen2";
  kinds["bpe"] = *make_bpe_tokenizer(vocabulary);
  kinds["character bpe"] = *make_character_bpe_tokenizer(read_vocabulary("small-character-bpe"));
  kinds["sentencepiece"] = *make_sentencepiece_tokenizer(read_vocabulary("small-sentencepiece"));
  vocabulary = read_vocabulary("small-unigram");
  vocabulary.unknown = kUnknown;
  kinds["unigram"] = *make_unigram_tokenizer(vocabulary);
  vocabulary = read_vocabulary("small-wordpiece");
  vocabulary.unknown = 1;
  kinds["wordpiece"] = *make_wordpiece_tokenizer(vocabulary);
  return kinds;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, ControlTokens::as_text, Beginning::omit);
}

TEST(TokenizerFieldCases, Tok03TextAfterNulIsKept) {
  const std::string text("banana\0apple", 12);
  for (const auto& [name, tokenizer] : all_kinds()) {
    const std::string decoded = decode(*tokenizer, encode(*tokenizer, text));
    EXPECT_THAT(decoded, HasSubstr("banana")) << name;
    EXPECT_THAT(decoded, HasSubstr("apple")) << name;
  }
}

TEST(TokenizerFieldCases, Tok04AnOldOrUnknownPreTokenizerIsAnError) {
  for (const char* name : {"", "default", "gpt-5"}) {
    Vocabulary vocabulary = read_vocabulary("small-qwen2");
    vocabulary.pre_tokenizer = name;
    const auto tokenizer = make_bpe_tokenizer(vocabulary);
    ASSERT_FALSE(tokenizer) << name;
    EXPECT_THAT(tokenizer.error().message, HasSubstr("Convert the model again"));
  }
}

TEST(TokenizerFieldCases, Tok10BytesThatAreNotUtf8AreText) {
  const std::string_view cases[] = {"\xc4\xe3\xba\xc3",
                                    "\xed\xa0\x80",
                                    "\xc0\xaf",
                                    "\xf8\x88\x80\x80\x80",
                                    "\xef\xbb\xbf",
                                    "\xff",
                                    "a\xe2\x82",
                                    "\x80\x80",
                                    "   ",
                                    "\r\n",
                                    ""};
  for (const auto& [name, tokenizer] : all_kinds()) {
    for (const std::string_view text : cases) {
      const auto ids = encode(*tokenizer, text);
      for (const TokenId id : ids) EXPECT_LT(id, tokenizer->vocabulary_size());
      if (name != "unigram" && name != "wordpiece") {
        EXPECT_EQ(decode(*tokenizer, ids), text) << name;
      }
    }
  }
}

TEST(TokenizerFieldCases, UserTextNeverBecomesAControlToken) {
  for (const auto& [name, tokenizer] : all_kinds()) {
    for (TokenId control = 0; control < tokenizer->vocabulary_size(); ++control) {
      if (!tokenizer->bytes(control).empty()) continue;  // only control and unknown tokens stand for nothing
      const std::string spelling(tokenizer->piece(control));
      if (spelling == "<unk>" || spelling == "[UNK]") continue;
      for (const std::string& text : {spelling, "x " + spelling + spelling + " y", spelling + "\n"}) {
        EXPECT_THAT(encode(*tokenizer, text), testing::Not(testing::Contains(control))) << name << text;
      }
    }
  }
}

}  // namespace
}  // namespace nanomind
