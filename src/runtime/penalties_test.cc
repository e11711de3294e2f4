// SPDX-License-Identifier: Apache-2.0
// Penalties by their formulas, on texts short enough to count by hand. Tokens of DRY are the letters of a string.
#include "runtime/penalties.h"

#include <gtest/gtest.h>

#include <map>

namespace nanomind {
namespace {

// Every byte is a token; of two letters there are none.
class Letters final : public Tokenizer {
 public:
  Letters() {
    for (int i = 0; i < 128; ++i) bytes_.emplace_back(1, static_cast<char>(i));
  }
  std::vector<TokenId> encode(std::string_view text, ControlTokens, Beginning) const override {
    return {text.begin(), text.end()};
  }
  std::string_view bytes(TokenId id) const override { return bytes_[static_cast<size_t>(id)]; }
  std::string_view piece(TokenId id) const override { return bytes(id); }
  int32_t vocabulary_size() const override { return 128; }
  std::optional<TokenId> beginning_token() const override { return {}; }
  std::optional<TokenId> end_token() const override { return {}; }
  bool adds_beginning() const override { return false; }
  std::optional<TokenId> closing_token() const override { return {}; }
  std::optional<TokenId> pair_separator() const override { return {}; }
  InfillTokens infill_tokens() const override { return {}; }
  bool ends_generation(TokenId) const override { return false; }

 private:
  std::vector<std::string> bytes_;
};

std::vector<float> penalised(const SamplerOptions& options, std::vector<float> logits, std::vector<TokenId> recent) {
  Penalties(options, logits.size(), nullptr).apply(logits, recent);
  return logits;
}

TEST(Penalties, RepetitionWorksOnBothSigns) {
  EXPECT_EQ(penalised({.repetition_penalty = 4}, {8, -2, 3, 0}, {0, 1, 0}), (std::vector<float>{2, -8, 3, 0}));
  EXPECT_EQ(penalised({.repetition_penalty = 4, .repetition_window = 1}, {8, 8}, {0, 1}), (std::vector<float>{8, 2}));
  EXPECT_EQ(penalised({.repetition_penalty = 4, .repetition_window = 0}, {8}, {0}), (std::vector<float>{8}));
  EXPECT_EQ(penalised({.repetition_penalty = 2, .repetition_window = -1}, {8, 8}, std::vector<TokenId>(500, 1)),
            (std::vector<float>{8, 4}));
}

TEST(Penalties, PresenceOnceAndFrequencyEachTime) {
  EXPECT_EQ(penalised({.presence_penalty = 0.5, .frequency_penalty = 0.25}, {1, 1, 1}, {0, 2, 0, 0}),
            (std::vector<float>{-0.25, 1, 0.25}));
  EXPECT_EQ(penalised({.presence_penalty = -0.5}, {1, 1}, {0}), (std::vector<float>{1.5, 1}));
}

TEST(Penalties, UnknownTokensAreLeftAlone) {
  EXPECT_EQ(penalised({.repetition_penalty = 4}, {8}, {-1, 7}), (std::vector<float>{8}));
}

// What DRY takes from each letter after `text`; only the others than 0.
std::map<char, float> dry(const std::string& text, DryOptions dry = {}) {
  static const Letters letters;
  dry.multiplier = 1;
  dry.base = 2;
  std::vector<float> logits(128, 0.0F);
  Penalties penalties({.dry = dry}, logits.size(), &letters);
  const std::vector<TokenId> recent(text.begin(), text.end());
  penalties.apply(logits, recent);
  std::vector<float> again(128, 0.0F);
  penalties.apply(again, recent);
  EXPECT_EQ(logits, again);
  std::map<char, float> taken;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != 0) taken[static_cast<char>(i)] = -logits[i];
  }
  return taken;
}

using Taken = std::map<char, float>;

TEST(Dry, GrowsWithTheLengthOfTheRepeat) {
  EXPECT_EQ(dry("abcd-b"), Taken{});  // one token is allowed to repeat
  EXPECT_EQ(dry("abcd-ab"), (Taken{{'c', 1}}));
  EXPECT_EQ(dry("abcd-abc"), (Taken{{'d', 2}}));
  EXPECT_EQ(dry("abcdefgh-abcdefg"), (Taken{{'h', 32}}));
  EXPECT_EQ(dry("abcd-abc", {.allowed_length = 3}), (Taken{{'d', 1}}));
}

TEST(Dry, TakesTheLongestMatchOfEachToken) {
  EXPECT_EQ(dry("xabc,abc.abd;xab"), (Taken{{'c', 2}, {'d', 1}}));
  EXPECT_EQ(dry("aaaaa"), (Taken{{'a', 4}}));  // "aaaa" came before the last a
}

TEST(Dry, BreakersEndARepeatAndAreFree) {
  EXPECT_EQ(dry("abcd-a\nbc"), (Taken{{'d', 1}}));  // only "bc" counts
  EXPECT_EQ(dry("ab\ncd-ab\nc"), Taken{});
  EXPECT_EQ(dry("abc\n-abc"), Taken{});  // the line may end again
  EXPECT_EQ(dry("abc\n-abc", {.breakers = {}}), (Taken{{'\n', 2}}));
}

TEST(Dry, BreakersMayBeSeveralTokens) {
  EXPECT_EQ(dry("abcSTOPde.abcSTOPde", {.breakers = {"STOP"}}), (Taken{{'.', 1}}));  // "de"
  EXPECT_EQ(dry("abcSTOde.abcSTOde", {.breakers = {"STOP"}}), (Taken{{'.', 64}}));   // all eight letters
}

TEST(Dry, TheWindowBoundsWhatIsSeen) {
  EXPECT_EQ(dry("abcd-abc", {.window = 8}), (Taken{{'d', 2}}));
  EXPECT_EQ(dry("abcd-abc", {.window = 7}), (Taken{{'d', 1}}));
  EXPECT_EQ(dry("abcd-abc", {.window = 4}), Taken{});
}

TEST(Dry, LongRepeatsStayFinite) {
  const auto taken = dry(std::string(900, 'a'));
  EXPECT_EQ(taken.at('a'), 1e6F);
}

}  // namespace
}  // namespace nanomind
