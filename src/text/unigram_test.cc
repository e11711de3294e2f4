// SPDX-License-Identifier: Apache-2.0
// The golden ids are those of the sentencepiece library, on a model that it trained (tools/golden/tokenizer_ids.py).
#include "text/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            ControlTokens control = ControlTokens::as_text) {
  return tokenizer.encode(text, control, Beginning::omit);
}

Vocabulary small() {
  Vocabulary vocabulary = read_vocabulary("small-unigram");
  std::ifstream file("tests/data/tokenizer/small-unigram.charsmap", std::ios::binary);
  vocabulary.charsmap.assign(std::istreambuf_iterator<char>(file), {});
  vocabulary.unknown = 0;
  vocabulary.adds_space_prefix = true;
  vocabulary.removes_extra_spaces = true;
  return vocabulary;
}

Vocabulary tiny() {
  return {
      .tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a", "ba", "<x>"},
      .types = {TokenType::unknown, TokenType::control, TokenType::control, TokenType::normal, TokenType::normal,
                TokenType::normal, TokenType::normal, TokenType::normal, TokenType::normal, TokenType::user_defined},
      .scores = {0, 0, 0, -5, -4, -4, -3, -6, -2, 0},
      .beginning = 1,
      .end = 2,
      .unknown = 0,
      .adds_end = true};
}

TEST(Unigram, TakesThePiecesWhoseScoresSumUpHighest) {
  const auto tokenizer = *make_unigram_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "ab"), ElementsAre(6));
  EXPECT_THAT(encode(*tokenizer, "aba"), ElementsAre(4, 8));  // -4 - 2 beats -3 - 4
  EXPECT_THAT(encode(*tokenizer, " ab"), ElementsAre(3, 6));  // -5 - 3 beats -6 - 4
  EXPECT_THAT(encode(*tokenizer, ""), IsEmpty());
}

TEST(Unigram, NeighboursWithoutATokenAreOneUnknownToken) {
  const auto tokenizer = *make_unigram_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "xyzaéb"), ElementsAre(0, 4, 0, 5));
  EXPECT_THAT(encode(*tokenizer, "\xff\xfe"), ElementsAre(0));
}

TEST(Unigram, SpacesAreTrimmedAndPrefixedWhereTheFileSaysSo) {
  Vocabulary vocabulary = tiny();
  vocabulary.removes_extra_spaces = true;
  EXPECT_THAT(encode(**make_unigram_tokenizer(vocabulary), "  a  b "), ElementsAre(4, 3, 5));
  vocabulary.adds_space_prefix = true;
  const auto tokenizer = *make_unigram_tokenizer(vocabulary);
  EXPECT_THAT(encode(*tokenizer, "  a  b "), ElementsAre(7, 3, 5));
  EXPECT_THAT(encode(*tokenizer, "   "), IsEmpty());
  EXPECT_THAT(encode(*tokenizer, "a<x>a"), ElementsAre(7, 9, 7));
}

TEST(Unigram, UserTextNeverBecomesAControlToken) {
  const auto tokenizer = *make_unigram_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "a</s>b"), ElementsAre(4, 0, 5));
  EXPECT_THAT(encode(*tokenizer, "a</s>b", ControlTokens::recognise), ElementsAre(4, 2, 5));
  EXPECT_EQ(tokenizer->closing_token(), 2);
  EXPECT_EQ(tokenizer->pair_separator(), std::nullopt);
  EXPECT_EQ(tokenizer->bytes(7), " a");
  EXPECT_EQ(tokenizer->bytes(2), "");
}

TEST(Unigram, BrokenVocabulariesAreErrors) {
  Vocabulary vocabulary = tiny();
  vocabulary.scores.pop_back();
  EXPECT_THAT(make_unigram_tokenizer(vocabulary).error().message, HasSubstr("9 scores"));
  vocabulary = tiny();
  vocabulary.scores[4] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(make_unigram_tokenizer(vocabulary).error().message, HasSubstr("not a number"));
  vocabulary = tiny();
  vocabulary.unknown = std::nullopt;
  EXPECT_THAT(make_unigram_tokenizer(vocabulary).error().message, HasSubstr("unknown_token_id"));
  vocabulary = tiny();
  vocabulary.charsmap = "abc";
  EXPECT_THAT(make_unigram_tokenizer(vocabulary).error().message, HasSubstr("precompiled_charsmap"));
}

TEST(Unigram, ABrokenCharsmapLosesNothingButItsReplacements) {
  Vocabulary vocabulary = small();
  for (size_t i = 4; i < vocabulary.charsmap.size(); i += 3) vocabulary.charsmap[i] = static_cast<char>(i * 37);
  const auto tokenizer = *make_unigram_tokenizer(vocabulary);
  for (const std::string& text : read_corpus()) encode(*tokenizer, text);
}

TEST(Unigram, IdsAreThoseOfTheReference) {
  Vocabulary vocabulary = small();
  EXPECT_GT(expect_golden_ids(**make_unigram_tokenizer(vocabulary), "small-unigram"), 2400);
  vocabulary.adds_space_prefix = vocabulary.removes_extra_spaces = false;
  EXPECT_GT(expect_golden_ids(**make_unigram_tokenizer(vocabulary), "small-unigram-as-is"), 2400);
}

TEST(Unigram, Tok01LongRunsTakeLinearTime) {
  const auto tokenizer = *make_unigram_tokenizer(small());
  for (const std::string_view unit : {"A", " ", "\n", "가", "7", "\xff", "<", "the ", "ﬁ"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const CpuTimer timer;
    encode(*tokenizer, text, ControlTokens::recognise);
    EXPECT_LT(timer.elapsed_s(), kLinearSeconds) << unit;
  }
}

}  // namespace
}  // namespace nanomind
