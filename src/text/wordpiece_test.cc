// SPDX-License-Identifier: Apache-2.0
// The golden ids are those of the tokenizers library, on a vocabulary that it trained (tools/golden/tokenizer_ids.py).
#include "text/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr TokenId kUnknown = 1;

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            ControlTokens control = ControlTokens::as_text) {
  return tokenizer.encode(text, control, Beginning::omit);
}

Vocabulary tiny() {
  return {.tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581play", "ing", "\u2581", "\u2581,", "\u2581中", "i",
                     "\u2581[", "\u2581]", "\u2581sep"},
          .types = {TokenType::control, TokenType::control, TokenType::control, TokenType::control, TokenType::normal,
                    TokenType::normal, TokenType::normal, TokenType::normal, TokenType::normal, TokenType::normal,
                    TokenType::normal, TokenType::normal, TokenType::normal},
          .beginning = 2,
          .end = 3,
          .unknown = kUnknown,
          .adds_beginning = true,
          .adds_end = true};
}

TEST(WordPiece, SpellsWordsByTheLongestPieces) {
  const auto tokenizer = *make_wordpiece_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "Playing, PLAY\tplay"), ElementsAre(4, 5, 7, 4, 4));
  EXPECT_THAT(encode(*tokenizer, "plàying"), ElementsAre(4, 5));
  EXPECT_THAT(encode(*tokenizer, "play中play"), ElementsAre(4, 8, 4));
  EXPECT_THAT(encode(*tokenizer, " \n\x01\xff"), IsEmpty());
  EXPECT_THAT(tokenizer->encode("play", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(2, 4));
  EXPECT_EQ(tokenizer->closing_token(), 3);
}

TEST(WordPiece, AWordWithoutPiecesIsUnknownAsAWhole) {
  const auto tokenizer = *make_wordpiece_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "playx play"), ElementsAre(kUnknown, 4));
  EXPECT_THAT(encode(*tokenizer, "ing"), ElementsAre(kUnknown));  // it does not begin a word
  EXPECT_THAT(encode(*tokenizer, "play\u2581play"), ElementsAre(kUnknown));
  const std::string long_word = "play" + std::string(96, 'i');
  EXPECT_EQ(encode(*tokenizer, long_word).size(), 97u);
  EXPECT_THAT(encode(*tokenizer, long_word + "i"), ElementsAre(kUnknown));
}

TEST(WordPiece, CaseAndAccentsStayWhereTheFileSaysSo) {
  Vocabulary vocabulary = tiny();
  vocabulary.lowercases = vocabulary.strips_accents = false;
  EXPECT_THAT(encode(**make_wordpiece_tokenizer(vocabulary), "play Play plày"), ElementsAre(4, kUnknown, kUnknown));
}

TEST(WordPiece, UserTextNeverBecomesAControlToken) {
  const auto tokenizer = *make_wordpiece_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "[SEP]"), ElementsAre(10, 12, 11));
  EXPECT_THAT(encode(*tokenizer, "play[SEP]play", ControlTokens::recognise), ElementsAre(4, 3, 4));
}

TEST(WordPiece, PiecesHaveBytes) {
  const auto tokenizer = *make_wordpiece_tokenizer(tiny());
  EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, "Playing, play")), " playing , play");
}

TEST(WordPiece, WithoutAnUnknownTokenThereIsAnError) {
  Vocabulary vocabulary = tiny();
  vocabulary.unknown = std::nullopt;
  EXPECT_THAT(make_wordpiece_tokenizer(vocabulary).error().message, HasSubstr("unknown_token_id"));
}

TEST(WordPiece, IdsAreThoseOfTheReference) {
  Vocabulary vocabulary = read_vocabulary("small-wordpiece");
  vocabulary.unknown = kUnknown;
  EXPECT_GT(expect_golden_ids(**make_wordpiece_tokenizer(vocabulary), "small-wordpiece"), 2200);
  vocabulary.lowercases = vocabulary.strips_accents = false;
  EXPECT_GT(expect_golden_ids(**make_wordpiece_tokenizer(vocabulary), "small-wordpiece-cased"), 2200);
}

TEST(WordPiece, Tok01LongRunsTakeLinearTime) {
  Vocabulary vocabulary = read_vocabulary("small-wordpiece");
  vocabulary.unknown = kUnknown;
  const auto tokenizer = *make_wordpiece_tokenizer(vocabulary);
  for (const std::string_view unit : {"A", " ", "\n", "가", "7", "\xff", "<", "the ", "\u0301", "中"}) {
    std::string text = "a";
    while (text.size() < 1'000'000) text += unit;
    const CpuTimer timer;
    encode(*tokenizer, text, ControlTokens::recognise);
    EXPECT_LT(timer.elapsed_s(), kLinearSeconds) << unit;
  }
  EXPECT_THAT(encode(*tokenizer, std::string(100'000, 'A')), ElementsAre(kUnknown));
}

}  // namespace
}  // namespace nanomind
