// SPDX-License-Identifier: Apache-2.0
// Greedy is exact, filters cut where their definitions say, draws follow the probabilities, a seed repeats a text.
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
  for (int i = 0; i < draws; ++i) counts[sampler.sample(logits, recent)] += 1.0 / draws;
  return counts;
}

SamplerOptions plain(uint64_t seed) {
  return {.temperature = 1,
          .top_k = 0,
          .top_p = 1,
          .min_p = 0,
          .repetition_penalty = 1,
          .repetition_window = 64,
          .seed = seed};
}

TEST(Sampler, GreedyIgnoresEverythingElse) {
  SamplerOptions options{.temperature = 0,
                         .top_k = 1,
                         .top_p = 0.1,
                         .min_p = 1,
                         .repetition_penalty = 50,
                         .repetition_window = 64,
                         .seed = 1};
  Sampler sampler(options, 4);
  const std::vector<float> logits{1, 5, std::numeric_limits<float>::quiet_NaN(), 4.999F};
  const std::vector<TokenId> recent{1, 1, 1};
  EXPECT_EQ(sampler.sample(logits, recent), 1);
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

TEST(Sampler, PenaltyWorksOnBothSigns) {
  SamplerOptions options = plain(8);
  options.repetition_penalty = 4;
  options.top_k = 1;
  EXPECT_EQ(frequencies(options, {3, 2}, 10, {0}).begin()->first, 1);
  EXPECT_EQ(frequencies(options, {-1, -2}, 10, {0}).begin()->first, 1);
  options.repetition_window = 1;
  EXPECT_EQ(frequencies(options, {3, 2}, 10, {0, 1}).begin()->first, 0);
}

TEST(Sampler, ASeedRepeatsAndAnotherDoesNot) {
  const std::vector<float> logits(100, 0.0F);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler(plain(seed), 100);
    std::vector<TokenId> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.sample(logits, {}));
    return ids;
  };
  EXPECT_EQ(draw(9), draw(9));
  EXPECT_NE(draw(9), draw(10));
}

TEST(Sampler, NeverChoosesNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto f = frequencies(plain(11), {nan, 0, nan, 0}, 1000);
  EXPECT_EQ(f.size(), 2U);
  EXPECT_TRUE(f.contains(1) && f.contains(3));
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
  EXPECT_EQ(message([](auto&) {}), "");
}

}  // namespace
}  // namespace nanomind
