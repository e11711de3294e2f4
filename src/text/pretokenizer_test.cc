// SPDX-License-Identifier: Apache-2.0
// Expected words: the published expressions, applied by hand.
#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanomind {
namespace {

using testing::ElementsAre;

std::vector<std::string_view> split(std::string_view name, std::string_view text) {
  return PreTokenizer::create(name)->split(text);
}

TEST(PreTokenizer, SmolLmTakesDigitsOneByOne) {
  EXPECT_THAT(split("smollm", "it's 42  ok"), ElementsAre("it", "'s", " ", "4", "2", " ", " ok"));
  EXPECT_THAT(split("smollm", "a  7"), ElementsAre("a", "  ", "7"));
  EXPECT_THAT(split("smollm", "x\n\n y "), ElementsAre("x", "\n\n", " y", " "));
  EXPECT_THAT(split("smollm", "IT'S"), ElementsAre("IT", "'", "S"));
}

TEST(PreTokenizer, Qwen2KeepsNewlinesWithPunctuation) {
  EXPECT_THAT(split("qwen2", "IT'S (a)\r\n\r\nb"), ElementsAre("IT", "'S", " (", "a", ")\r\n\r\n", "b"));
  EXPECT_THAT(split("qwen2", "a  7"), ElementsAre("a", " ", " ", "7"));
  EXPECT_THAT(split("qwen2", "  \n  x"), ElementsAre("  \n", " ", " x"));
  EXPECT_THAT(split("qwen2", "\txy"), ElementsAre("\txy"));
}

TEST(PreTokenizer, InvalidBytesAreWordsOfTheirOwn) {
  EXPECT_THAT(split("qwen2", "a\xff\xc3(\xe2\x82"), ElementsAre("a", "\xff", "\xc3", "(", "\xe2\x82"));
}

TEST(PreTokenizer, UnknownNameIsAnError) {
  const auto result = PreTokenizer::create("");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace nanomind
