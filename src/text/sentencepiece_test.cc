// SPDX-License-Identifier: Apache-2.0
#include "text/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            ControlTokens control = ControlTokens::as_text) {
  return tokenizer.encode(text, control, Beginning::omit);
}

// "ab" beats "bc" by its score; two byte tokens; "  " is always one token.
Vocabulary tiny() {
  return {.tokens = {"<unk>", "<s>", "a", "b", "c", "ab", "bc", "\u2581", "\u2581a", "  ", "<0x0A>", "<0xFF>"},
          .types = {TokenType::unknown, TokenType::control, TokenType::normal, TokenType::normal, TokenType::normal,
                    TokenType::normal, TokenType::normal, TokenType::normal, TokenType::normal, TokenType::user_defined,
                    TokenType::byte, TokenType::byte},
          .scores = {0, 0, -10, -11, -12, -1, -2, -13, -3, -1000, 0, 0},
          .beginning = 1,
          .unknown = 0};
}

TEST(SentencePiece, MergesByScore) {
  const auto tokenizer = *make_sentencepiece_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "abc"), ElementsAre(5, 4));
  EXPECT_THAT(encode(*tokenizer, "cbc"), ElementsAre(4, 6));
  EXPECT_THAT(encode(*tokenizer, " a"), ElementsAre(8));
  EXPECT_THAT(encode(*tokenizer, " ab"), ElementsAre(7, 5));
}

TEST(SentencePiece, UserDefinedTokensComeFirst) {
  EXPECT_THAT(encode(**make_sentencepiece_tokenizer(tiny()), "a   a"), ElementsAre(2, 9, 8));
}

TEST(SentencePiece, FallsBackToBytesOrTheUnknownToken) {
  const auto tokenizer = *make_sentencepiece_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "a\nb\xff"), ElementsAre(2, 10, 3, 11));
  EXPECT_THAT(encode(*tokenizer, "é"), ElementsAre(0));
  EXPECT_THAT(encode(*tokenizer, "<0x0A>"), testing::Each(0));  // typed, it is text
  EXPECT_EQ(tokenizer->bytes(10), "\n");
  EXPECT_EQ(tokenizer->bytes(11), "\xff");
  EXPECT_EQ(tokenizer->bytes(8), " a");
  EXPECT_EQ(tokenizer->bytes(9), "  ");
  EXPECT_EQ(tokenizer->bytes(1), "");
}

TEST(SentencePiece, SpacePrefixStandsAtTheStartAndAfterControlTokens) {
  Vocabulary vocabulary = tiny();
  vocabulary.adds_space_prefix = true;
  const auto tokenizer = *make_sentencepiece_tokenizer(vocabulary);
  EXPECT_THAT(encode(*tokenizer, "a<s>a", ControlTokens::recognise), ElementsAre(8, 1, 8));
  EXPECT_THAT(encode(*tokenizer, "a  a"), ElementsAre(8, 9, 2));
  EXPECT_TRUE(encode(*tokenizer, "").empty());
}

TEST(SentencePiece, BrokenVocabulariesAreErrors) {
  Vocabulary vocabulary = tiny();
  vocabulary.scores.pop_back();
  EXPECT_THAT(make_sentencepiece_tokenizer(vocabulary).error().message, HasSubstr("11 scores"));
  vocabulary = tiny();
  vocabulary.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(make_sentencepiece_tokenizer(vocabulary).error().message, HasSubstr("not a number"));
  vocabulary = tiny();
  vocabulary.tokens[10] = "<0xZZ>";
  EXPECT_THAT(make_sentencepiece_tokenizer(vocabulary).error().message, HasSubstr("<0xZZ>"));
}

TEST(SentencePiece, IdsAreThoseOfTheReference) {
  const auto tokenizer = *make_sentencepiece_tokenizer(read_vocabulary("small-sentencepiece"));
  EXPECT_GT(expect_golden_ids(*tokenizer, "small-sentencepiece"), 1900);
}

TEST(SentencePiece, EveryTextComesBackByteForByte) {
  const auto tokenizer = *make_sentencepiece_tokenizer(read_vocabulary("small-sentencepiece"));
  for (const std::string& text : read_corpus()) {
    // The sign that stands for a space cannot be told from one afterwards.
    if (text.find("\u2581") != std::string::npos) continue;
    EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text);
  }
}

TEST(SentencePiece, Tok01LongRunsTakeLinearTime) {
  const auto tokenizer = *make_sentencepiece_tokenizer(read_vocabulary("small-sentencepiece"));
  for (const std::string_view unit : {"A", " ", "\n", "가", "7", "\xff", "<", "the "}) {
    std::string text;
    while (text.size() < 500'000) text += unit;
    const CpuTimer timer;
    const auto ids = encode(*tokenizer, text, ControlTokens::recognise);
    const double elapsed_s = timer.elapsed_s();
    EXPECT_EQ(decode(*tokenizer, ids), text);
    EXPECT_LT(elapsed_s, kLinearSeconds) << unit;
  }
}

}  // namespace
}  // namespace nanomind
