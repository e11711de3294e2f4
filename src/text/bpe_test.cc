// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<Tokenizer> small(const std::string& pre) {
  Vocabulary vocabulary = read_vocabulary("small-" + pre);
  vocabulary.pre_tokenizer = pre;
  auto tokenizer = make_bpe_tokenizer(std::move(vocabulary));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

// h, e, l, o, ll merged first, then he; one control token, one user-defined one.
Vocabulary tiny() {
  return {.tokens = {"h", "e", "l", "o", "ll", "he", "<|im_end|>", "<think>", "<thinking>"},
          .types = {TokenType::normal, TokenType::normal, TokenType::normal, TokenType::normal, TokenType::normal,
                    TokenType::normal, TokenType::control, TokenType::user_defined, TokenType::user_defined},
          .merges = {"l l", "h e"},
          .pre_tokenizer = "smollm",
          .beginning = 6};
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            ControlTokens control = ControlTokens::as_text) {
  return tokenizer.encode(text, control, Beginning::omit);
}

TEST(Bpe, MergesInTheOrderOfTheList) {
  const auto tokenizer = *make_bpe_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "hello"), ElementsAre(5, 4, 3));
  EXPECT_THAT(encode(*tokenizer, "lllll"), ElementsAre(4, 4, 2));
  EXPECT_THAT(encode(*tokenizer, ""), IsEmpty());
}

TEST(Bpe, BytesWithoutATokenAreLeftOut) { EXPECT_THAT(encode(**make_bpe_tokenizer(tiny()), "hxe"), ElementsAre(5)); }

TEST(Bpe, ControlTokensAreRecognisedOnlyOnRequestAndUserDefinedOnesAlways) {
  const auto tokenizer = *make_bpe_tokenizer(tiny());
  EXPECT_THAT(encode(*tokenizer, "he<|im_end|>l", ControlTokens::recognise), ElementsAre(5, 6, 2));
  EXPECT_THAT(encode(*tokenizer, "<|im_end|>"), ElementsAre(1));  // only the e has a token
  EXPECT_THAT(encode(*tokenizer, "<think>h<thinking><think"), ElementsAre(7, 0, 8, 0));
}

TEST(Bpe, MergesNeverMakeAControlToken) {
  Vocabulary vocabulary = tiny();
  vocabulary.tokens[6] = "hel";
  vocabulary.merges.push_back("he l");
  EXPECT_THAT(encode(**make_bpe_tokenizer(vocabulary), "hel"), ElementsAre(5, 2));
}

TEST(Bpe, BytesAndSpellings) {
  const auto tokenizer = *make_bpe_tokenizer(tiny());
  EXPECT_EQ(tokenizer->bytes(4), "ll");
  EXPECT_EQ(tokenizer->bytes(6), "");
  EXPECT_EQ(tokenizer->piece(6), "<|im_end|>");
  EXPECT_EQ(tokenizer->bytes(7), "<think>");
  EXPECT_EQ(tokenizer->bytes(-1), "");
  EXPECT_EQ(tokenizer->piece(9), "");
  EXPECT_TRUE(tokenizer->ends_generation(6));
  EXPECT_FALSE(tokenizer->ends_generation(7));
  EXPECT_FALSE(tokenizer->ends_generation(-5));
}

TEST(Bpe, BeginningIsAddedWhereTheModelAsksForIt) {
  Vocabulary vocabulary = tiny();
  EXPECT_THAT((*make_bpe_tokenizer(vocabulary))->encode("h", ControlTokens::as_text, Beginning::add_if_model_does),
              ElementsAre(0));
  vocabulary.adds_beginning = true;
  const auto tokenizer = *make_bpe_tokenizer(vocabulary);
  EXPECT_THAT(tokenizer->encode("h", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(6, 0));
  EXPECT_THAT(tokenizer->encode("h", ControlTokens::as_text, Beginning::omit), ElementsAre(0));
}

TEST(Bpe, BrokenVocabulariesAreErrors) {
  const auto message = [](Vocabulary vocabulary) { return make_bpe_tokenizer(std::move(vocabulary)).error().message; };
  Vocabulary vocabulary = tiny();
  vocabulary.pre_tokenizer = "martian";
  EXPECT_THAT(message(vocabulary), testing::AllOf(HasSubstr("\"martian\""), HasSubstr("qwen2"), HasSubstr("smollm")));
  vocabulary = tiny();
  vocabulary.merges.push_back("h q");
  EXPECT_THAT(message(vocabulary), HasSubstr("not in its vocabulary"));
  vocabulary = tiny();
  vocabulary.merges.push_back("hq");
  EXPECT_THAT(message(vocabulary), HasSubstr("not a pair"));
  vocabulary.merges.back() = "";
  EXPECT_THAT(message(vocabulary), HasSubstr("not a pair"));
  vocabulary = tiny();
  vocabulary.types.pop_back();
  EXPECT_THAT(message(vocabulary), HasSubstr("8 token types"));
  vocabulary = tiny();
  vocabulary.end = 9;
  EXPECT_THAT(message(vocabulary), HasSubstr("end token 9"));
  EXPECT_THAT(message({}), HasSubstr("0 tokens"));
}

class SmallBpe : public testing::TestWithParam<std::string> {};

TEST_P(SmallBpe, IdsAreThoseOfTheReference) {
  EXPECT_GT(expect_golden_ids(*small(GetParam()), "small-" + GetParam()), 1900);
}

TEST_P(SmallBpe, EveryTextComesBackByteForByte) {
  const auto tokenizer = small(GetParam());
  for (const std::string& text : read_corpus()) EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text);
}

TEST_P(SmallBpe, Tok01LongRunsTakeLinearTime) {
  const auto tokenizer = small(GetParam());
  const auto repeat = [](std::string_view unit, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += unit;
    return text;
  };
  for (const std::string& text :
       {repeat("A", 1'000'000), repeat(" ", 1'000'000), repeat("\n", 100'000), repeat("가", 100'000),
        repeat("7", 1'000'000), repeat(" \n", 200'000), repeat(" ", 500'000) + "x", repeat("<", 500'000),
        repeat("\xff", 500'000), repeat(std::string_view("\0", 1), 500'000), repeat("Ab1 \xe2é!\n", 60'000)}) {
    const CpuTimer timer;
    const auto ids = encode(*tokenizer, text, ControlTokens::recognise);
    const double elapsed_s = timer.elapsed_s();
    EXPECT_EQ(decode(*tokenizer, ids), text);
    EXPECT_LT(elapsed_s, kLinearSeconds) << text.substr(0, 8);
    RecordProperty("ms_" + std::to_string(text.size()), static_cast<int>(elapsed_s * 1000));
  }
}

INSTANTIATE_TEST_SUITE_P(PreTokenizers, SmallBpe, testing::Values("smollm", "qwen2"));

}  // namespace
}  // namespace nanomind
