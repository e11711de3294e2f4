// SPDX-License-Identifier: Apache-2.0
// Greedy is exact, filters cut where their definitions say, draws follow the probabilities, a seed repeats a text.
// Expected frequencies follow from the probabilities that each test gives; they are met within four standard
// deviations.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace nanomind {
namespace {

std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::map<TokenId, double> frequencies(const SamplerOptions& options, const std::vector<float>& logits, int draws,
                                      const std::vector<TokenId>& recent = {}) {
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  std::map<TokenId, double> counts;
  for (int i = 0; i < draws; ++i) counts[sampler.sample(logits, recent).value()] += 1.0 / draws;
  return counts;
}

SamplerOptions plain(uint64_t seed) { return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed}; }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Sampler, Qual03GreedyIgnoresEverythingElse) {
  SamplerOptions options{.temperature = 0,
                         .top_k = 1,
                         .top_p = 0.1,
                         .min_p = 1,
                         .typical_p = 0.1,
                         .repetition_penalty = 50,
                         .presence_penalty = 9,
                         .frequency_penalty = 9,
                         .repetition_window = 64,
                         .seed = 1};
  options.dry.multiplier = 5;
  options.xtc = {.probability = 1, .threshold = 0.01};
  options.mirostat.version = MirostatOptions::Version::v2;
  Sampler sampler(options, 4);
  const std::vector<float> logits{1, 5, 4, 4.999F};
  const std::vector<TokenId> recent{1, 1, 1, 1};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sampler.sample(logits, recent), 1);
}

TEST(Sampler, GreedyObeysBiasAndMask) {
  SamplerOptions options{.temperature = 0};
  const std::vector<float> logits{1, 5, 4, 3};
  const uint32_t mask = 0b1101;
  EXPECT_EQ(Sampler(options, 4).sample(logits, {}, {&mask, 1}), 2);
  options.logit_bias = {{1, -kInfinity}, {3, 1.5}};
  EXPECT_EQ(Sampler(options, 4).sample(logits, {}), 3);
  EXPECT_EQ(Sampler(options, 4).sample(logits, {}, {&mask, 1}), 3);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const auto f = frequencies(plain(3), logits_of({0.5, 0.3, 0.15, 0.05}), 40000);
  EXPECT_NEAR(f.at(0), 0.5, 0.01);  // four standard deviations of 40,000 draws
  EXPECT_NEAR(f.at(1), 0.3, 0.01);
  EXPECT_NEAR(f.at(2), 0.15, 0.01);
  EXPECT_NEAR(f.at(3), 0.05, 0.005);
}

TEST(Sampler, TemperatureSharpensBySquaring) {
  SamplerOptions options = plain(4);
  options.temperature = 0.5;
  const auto f = frequencies(options, logits_of({0.6, 0.4}), 40000);
  EXPECT_NEAR(f.at(0), 0.36 / 0.52, 0.01);
}

TEST(Sampler, TopKKeepsTheBest) {
  SamplerOptions options = plain(5);
  options.top_k = 2;
  const auto f = frequencies(options, logits_of({0.1, 0.4, 0.2, 0.3}), 5000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_NEAR(f.at(1), 4.0 / 7, 0.03);
  EXPECT_TRUE(f.contains(3));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  SamplerOptions options = plain(6);
  options.top_p = 0.75;
  const auto f = frequencies(options, logits_of({0.5, 0.3, 0.15, 0.05}), 5000);
  EXPECT_EQ(f.size(), 2U);
  options.top_p = 0.01;
  EXPECT_EQ(frequencies(options, logits_of({0.5, 0.3, 0.2}), 100).size(), 1U);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplerOptions options = plain(7);
  options.min_p = 0.25;
  const auto f = frequencies(options, logits_of({0.6, 0.2, 0.149, 0.051}), 5000);
  EXPECT_EQ(f.size(), 2U);
}

// Entropy of (0.5, 0.3, 0.15, 0.05) is 1.142 nats; their surprises are 0.693, 1.204, 1.897 and 2.996, so the order of
// closeness is 0.3, 0.5, 0.15, 0.05.
TEST(Sampler, TypicalKeepsWhatIsAsSurprisingAsExpected) {
  SamplerOptions options = plain(12);
  options.typical_p = 0.2;
  const auto logits = logits_of({0.5, 0.3, 0.15, 0.05});
  EXPECT_EQ(frequencies(options, logits, 100).size(), 1U);
  EXPECT_TRUE(frequencies(options, logits, 100).contains(1));
  options.typical_p = 0.79;
  const auto f = frequencies(options, logits, 40000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_NEAR(f.at(0), 0.625, 0.01);
  options.typical_p = 0.81;
  EXPECT_EQ(frequencies(options, logits, 5000).size(), 3U);
}

TEST(Sampler, XtcDropsAllLikelyOnesButTheLeast) {
  SamplerOptions options = plain(13);
  options.xtc = {.probability = 1, .threshold = 0.1};
  const auto logits = logits_of({0.5, 0.3, 0.15, 0.05});
  const auto f = frequencies(options, logits, 40000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_NEAR(f.at(2), 0.75, 0.01);
  options.xtc.threshold = 0.4;  // one is likely: nothing to drop
  EXPECT_EQ(frequencies(options, logits, 5000).size(), 4U);
  options.xtc = {.probability = 0.25, .threshold = 0.1};
  // A quarter of the draws is from the two that are left, the rest from all.
  EXPECT_NEAR(frequencies(options, logits, 40000).at(0), 0.75 * 0.5, 0.01);
}

// Mirostat drops tokens of more than its limit of bits, 2 tau at first: of (1/2, 1/4, 1/8, 1/8) with 1, 2, 3, 3 bits.
TEST(Sampler, MirostatDropsWhatSurprisesTooMuch) {
  SamplerOptions options = plain(14);
  options.top_k = 1;  // has no effect
  options.mirostat = {.version = MirostatOptions::Version::v2, .tau = 1.25, .eta = 0};
  const auto logits = logits_of({0.5, 0.25, 0.125, 0.125});
  const auto f = frequencies(options, logits, 40000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_NEAR(f.at(0), 2.0 / 3, 0.01);
  options.mirostat.tau = 0;
  EXPECT_EQ(frequencies(options, logits, 100).size(), 1U);
}

// Many tokens, near to equally likely: the mean surprise must come to tau.
TEST(Sampler, MirostatMeetsItsAim) {
  SamplerOptions options = plain(15);
  options.mirostat = {.version = MirostatOptions::Version::v2, .tau = 4, .eta = 0.1};
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>(-std::log(i + 1)));  // Zipf's law
  Sampler sampler(options, 1000);
  double harmonic = 0;
  for (int i = 0; i < 1000; ++i) harmonic += 1.0 / (i + 1);
  double bits = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) bits += std::log2((sampler.sample(logits, {}).value() + 1) * harmonic);
  // Surprise of the text is counted among what was left, which is at most 1 bit less than among all.
  EXPECT_GT(bits / kDraws, 4.0 - 0.1);
  EXPECT_LT(bits / kDraws, 5.0);
}

TEST(Sampler, BiasAddsToTheLogit) {
  SamplerOptions options = plain(16);
  options.logit_bias = {{0, std::log(4.0)}, {2, -kInfinity}, {9, 3}};
  const auto f = frequencies(options, logits_of({0.2, 0.4, 0.4}), 40000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_NEAR(f.at(0), 0.8 / 1.2, 0.01);
}

TEST(Sampler, MaskLeavesTheDistributionOfTheAllowed) {
  std::vector<float> logits(70, 0.0F);
  logits[33] = static_cast<float>(std::log(3.0));
  const std::vector<uint32_t> mask{1U << 5, 1U << 1};  // 5 and 33; what is beyond the mask is not allowed
  const auto draw = [&](const SamplerOptions& options) {
    Sampler sampler(options, 70);
    std::map<TokenId, double> counts;
    for (int i = 0; i < 40000; ++i) counts[sampler.sample(logits, {}, mask).value()] += 1.0 / 40000;
    return counts;
  };
  const auto f = draw(plain(17));
  EXPECT_EQ(f.size(), 2U);
  EXPECT_NEAR(f.at(33), 0.75, 0.01);
  SamplerOptions options = plain(18);
  options.top_k = 1;
  EXPECT_EQ(draw(options).size(), 1U);
}

TEST(Sampler, PenaltiesComeBeforeTheFilters) {
  SamplerOptions options = plain(8);
  options.repetition_penalty = 4;
  options.top_k = 1;
  EXPECT_EQ(frequencies(options, {3, 2}, 10, {0}).begin()->first, 1);
  options.repetition_penalty = 1;
  options.dry.multiplier = 2;
  EXPECT_EQ(frequencies(options, {3, 2, 0, 0}, 10, {2, 3, 0, 2, 3}).begin()->first, 1);
}

// With top-k and top-p the order shows: top-p of what top-k left.
TEST(Sampler, EachFilterSeesWhatTheOneBeforeLeft) {
  SamplerOptions options = plain(19);
  options.top_k = 2;
  options.top_p = 0.6;  // 0.4 / 0.7 = 0.57 is not enough, so both stay
  EXPECT_EQ(frequencies(options, logits_of({0.4, 0.3, 0.3}), 1000).size(), 2U);
  options.top_p = 0.55;
  EXPECT_EQ(frequencies(options, logits_of({0.4, 0.3, 0.3}), 1000).size(), 1U);
}

// Filters that put only the best in order must agree with those that see everything.
TEST(Sampler, LargeVocabulariesAreCutInTheSamePlaces) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -static_cast<float>(i * 7919 % 5000) * 0.001F;
  SamplerOptions options = plain(20);
  options.min_p = std::exp(-1.0005);  // logits down to -1: 1001 tokens
  for (const auto& [id, share] : frequencies(options, logits, 2000)) EXPECT_GE(logits[static_cast<size_t>(id)], -1.0F);
  options.min_p = 0;
  options.top_p = 0.5;  // the mass down to -x is (1 - e^-x) / (1 - e^-5)
  const float limit = static_cast<float>(std::log(1 - 0.5 * (1 - std::exp(-5.0))));
  float lowest = 0;
  for (const auto& [id, share] : frequencies(options, logits, 8000)) {
    lowest = std::min(lowest, logits[static_cast<size_t>(id)]);
  }
  EXPECT_NEAR(lowest, limit, 0.003);
}

TEST(Sampler, ASeedRepeatsAndAnotherDoesNot) {
  const std::vector<float> logits(100, 0.0F);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler(plain(seed), 100);
    std::vector<TokenId> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.sample(logits, {}).value());
    return ids;
  };
  EXPECT_EQ(draw(9), draw(9));
  EXPECT_NE(draw(9), draw(10));
}

TEST(Sampler, LogitsThatAreNoNumbersAreAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      SamplerOptions options = plain(11);
      options.temperature = temperature;
      const auto chosen = Sampler(options, 3).sample(std::vector<float>{0, bad, 1}, {});
      ASSERT_FALSE(chosen);
      EXPECT_EQ(chosen.error().code, ErrorCode::corrupt);
    }
  }
}

TEST(Sampler, MinusInfinityIsNeverChosen) {
  const float never = -std::numeric_limits<float>::infinity();
  const auto f = frequencies(plain(11), {never, 0, never, 0}, 1000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_TRUE(f.contains(1) && f.contains(3));
}

TEST(Sampler, NothingAllowedIsAnError) {
  const uint32_t mask = 0;
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions options = plain(11);
    options.temperature = temperature;
    EXPECT_FALSE(Sampler(options, 3).sample(std::vector<float>{0, 1, 2}, {}, {&mask, 1}));
  }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto message = [](auto change) {
    SamplerOptions options;
    change(options);
    const Result<void> checked = check(options);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_NE(message([](auto& o) { o.temperature = -1; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.temperature = std::nan(""); }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.top_p = 0; }).find("top-p"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.top_k = -1; }).find("top-k"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.min_p = 2; }).find("min-p"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.repetition_penalty = 0; }).find("penalty"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.typical_p = 0; }).find("typical"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.presence_penalty = std::nan(""); }).find("presence"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.repetition_window = -2; }).find("window"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.dry.breakers = {""}; }).find("breaker"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.dry.allowed_length = 0; }).find("DRY"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.xtc.probability = 2; }).find("XTC"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.mirostat.eta = -1; }).find("eta"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.logit_bias = {{-1, 0}}; }).find("bias"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.logit_bias = {{1, std::nan("")}}; }).find("bias"), std::string::npos);
  EXPECT_EQ(message([](auto&) {}), "");
}

}  // namespace
}  // namespace nanomind
