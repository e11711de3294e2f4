// SPDX-License-Identifier: Apache-2.0
// Expected words: the published expressions, applied by hand and (tests/data/tokenizer/words.txt) by the library that
// models are trained with, tools/golden/tokenizer_words.py.
#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iomanip>
#include <map>

#include "text/pretokenizer_rules.h"
#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
  for (const std::string_view name : {"", "default", "no-such-rule", "Qwen2"}) {
    const auto result = PreTokenizer::create(name);
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code, ErrorCode::unsupported);
    EXPECT_THAT(result.error().message,
                AllOf(HasSubstr("\"" + std::string(name) + "\""), HasSubstr(", llama-bpe, "), HasSubstr(" qwen2,")));
  }
}

TEST(PreTokenizer, EveryNameHasOneRuleThatCompiles) {
  std::map<std::string_view, int> seen;
  for (const std::string_view name : pre_tokenizer_names()) {
    EXPECT_EQ(++seen[name], 1) << name;
    EXPECT_TRUE(PreTokenizer::create(name)) << name;
  }
}

// Lengths of the words as tokenizer_words.py hashes them.
std::string hash_words(std::span<const std::string_view> words) {
  std::vector<TokenId> sizes;
  for (const std::string_view word : words) sizes.push_back(static_cast<TokenId>(word.size()));
  const uint64_t hash = hash_ids(sizes);
  std::ostringstream out;
  out << std::hex << std::setw(4) << std::setfill('0') << ((hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) & 0xffff);
  return out.str();
}

// Names of the rules in words.txt and the hashes of each, one after another.
std::map<std::string, std::string> read_words() {
  std::map<std::string, std::string> rules;
  std::string name;
  for (const std::string& line : read_lines("tests/data/tokenizer/words.txt")) {
    if (line.find_first_not_of("0123456789abcdef-") == std::string::npos && line.size() % 4 == 0) {
      rules[name] += line;
    } else {
      name = line;
    }
  }
  return rules;
}

TEST(PreTokenizer, WordsAreThoseOfTheReference) {
  const auto texts = read_corpus();
  const auto rules = read_words();
  EXPECT_GE(rules.size(), 26u);
  for (const auto& [name, expected] : rules) {
    SCOPED_TRACE(name);
    ASSERT_EQ(expected.size(), texts.size() * 4);
    const auto pre_tokenizer = PreTokenizer::create(name);
    ASSERT_TRUE(pre_tokenizer);
    int wrong = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string hash = expected.substr(i * 4, 4);
      if (hash == "----") continue;
      const auto words = pre_tokenizer->split(texts[i]);
      if (hash_words(words) != hash && ++wrong <= 5) {
        ADD_FAILURE() << "line " << i + 1 << ": " << testing::PrintToString(words);
      }
    }
    EXPECT_EQ(wrong, 0) << "of " << texts.size();
  }
}

TEST(PreTokenizer, TextIsNeverLost) {
  const auto texts = read_corpus();
  for (const std::string_view name : pre_tokenizer_names()) {
    const auto pre_tokenizer = PreTokenizer::create(name);
    for (const std::string& text : texts) {
      std::string joined;
      for (const std::string_view word : pre_tokenizer->split(text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text) << name;
    }
  }
}

// For every rule: long runs, also where an expression fails at each of their places.
TEST(PreTokenizer, Tok01LongRunsTakeLinearTime) {
  for (const auto& [name, hashes] : read_words()) {
    const auto pre_tokenizer = PreTokenizer::create(name);
    for (const std::string_view unit :
         {"A", "a", " ", "\n", "\t\n", "7", "=", "가", "\u0301", "a ", "中", "<", "\xff"}) {
      for (const std::string_view end : {"x", "5"}) {
        std::string text;
        while (text.size() < 200'000) text += unit;
        text += end;
        const CpuTimer timer;
        size_t size = 0;
        for (const std::string_view word : pre_tokenizer->split(text)) size += word.size();
        EXPECT_EQ(size, text.size());
        // Quadratic time would be 2 * 10^10 steps.
        EXPECT_LT(timer.elapsed_s(), kLinearSeconds) << name << ": " << unit << " ... " << end;
      }
    }
  }
}

}  // namespace
}  // namespace nanomind
