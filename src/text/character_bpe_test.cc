// SPDX-License-Identifier: Apache-2.0
// The golden ids are those of the tokenizers library, on a vocabulary that it trained (tools/golden/tokenizer_ids.py).
#include "text/character_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            ControlTokens control = ControlTokens::as_text) {
  return tokenizer.encode(text, control, Beginning::omit);
}

Vocabulary tiny() {
  return {.tokens = {"<unk>", "<turn|>", "\u2581", "a", "b", "\u2581a", "\u2581ab", "  ", "\n", "\n\n\n", "<0xC3>",
                     "<0xA9>", "<0xFF>"},
          .types = {TokenType::unknown, TokenType::control, TokenType::normal, TokenType::normal, TokenType::normal,
                    TokenType::normal, TokenType::normal, TokenType::user_defined, TokenType::normal, TokenType::normal,
                    TokenType::byte, TokenType::byte, TokenType::byte},
          .merges = {"\u2581 a", "\u2581a b", "\u2581 \u2581"},
          .unknown = 0};
}

TEST(CharacterBpe, MergesAcrossSpaces) {
  const auto tokenizer = *make_character_bpe_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "a ab"), ElementsAre(3, 6));
  EXPECT_THAT(encode(*tokenizer, "a   ab"), ElementsAre(3, 7, 6));
  EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, "a   ab\n\n\n\nb")), "a   ab\n\n\n\nb");
}

TEST(CharacterBpe, ARunOfLineEndsMayBeOneToken) {
  const auto tokenizer = *make_character_bpe_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "a\n\n\nb\n\n"), ElementsAre(3, 9, 4, 8, 8));
}

TEST(CharacterBpe, FallsBackToBytesOrTheUnknownToken) {
  const auto tokenizer = *make_character_bpe_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "é\xff"), ElementsAre(10, 11, 12));
  EXPECT_THAT(encode(*tokenizer, "ü"), ElementsAre(0));
}

TEST(CharacterBpe, UserTextNeverBecomesAControlToken) {
  const auto tokenizer = *make_character_bpe_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "<turn|>"), testing::Not(testing::Contains(1)));
  EXPECT_THAT(encode(*tokenizer, "a<turn|>b", ControlTokens::recognise), ElementsAre(3, 1, 4));
  EXPECT_TRUE(tokenizer->ends_generation(1));
}

TEST(CharacterBpe, BrokenVocabulariesAreErrors) {
  Vocabulary vocabulary = tiny();
  vocabulary.merges.push_back("a q");
  EXPECT_THAT(make_character_bpe_tokenizer(vocabulary).error().message, HasSubstr("not in its vocabulary"));
  vocabulary = tiny();
  vocabulary.tokens[10] = "<C3>";
  EXPECT_THAT(make_character_bpe_tokenizer(vocabulary).error().message, HasSubstr("<0x00>"));
}

TEST(CharacterBpe, IdsAreThoseOfTheReference) {
  Vocabulary vocabulary = read_vocabulary("small-character-bpe");
  EXPECT_GT(expect_golden_ids(**make_character_bpe_tokenizer(vocabulary), "small-character-bpe"), 2300);
}

TEST(CharacterBpe, EveryTextComesBackByteForByte) {
  const auto tokenizer = *make_character_bpe_tokenizer(read_vocabulary("small-character-bpe"));
  for (const std::string& text : read_corpus()) {
    // The sign that stands for a space cannot be told from one afterwards.
    if (text.find("\u2581") != std::string::npos) continue;
    EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text);
  }
}

TEST(CharacterBpe, Tok01LongRunsTakeLinearTime) {
  const auto tokenizer = *make_character_bpe_tokenizer(read_vocabulary("small-character-bpe"));
  for (const std::string_view unit : {"A", " ", "\n", "가", "7", "\xff", "<", "the "}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const CpuTimer timer;
    const auto ids = encode(*tokenizer, text, ControlTokens::recognise);
    EXPECT_LT(timer.elapsed_s(), kLinearSeconds) << unit;
    EXPECT_EQ(decode(*tokenizer, ids), text);
  }
}

}  // namespace
}  // namespace nanomind
