// SPDX-License-Identifier: Apache-2.0
#include "runtime/divergence.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

namespace nanomind {
namespace {

TEST(DivergenceMeter, SumsWhatTheFormulaSays) {
  DivergenceMeter meter;
  // p = (1/2, 1/2), q = (1/4, 3/4): KL = 1/2 ln 2 + 1/2 ln 2/3 = 1/2 ln 4/3; constants cancel.
  const std::vector<float> even = {3, 3}, q = {0, std::log(3.0F)}, reverse = {std::log(3.0F) - 7, -7};
  meter.add(even, q);
  // p = (3/4, 1/4), q = (1/4, 3/4): KL = 3/4 ln 3 - 1/4 ln 3.
  meter.add(reverse, q);
  meter.add(q, q);
  const Divergence d = meter.result();
  const double first = 0.5 * std::log(4.0 / 3), second = 0.5 * std::log(3.0);
  EXPECT_EQ(d.positions, 3);
  EXPECT_NEAR(d.mean, (first + second) / 3, 1e-7);
  EXPECT_NEAR(d.most, second, 1e-7);
  // The reference's first of equals is its best, which the other does not share; nor do the two reversed ones.
  EXPECT_NEAR(d.same_best, 1.0 / 3, 1e-12);
  EXPECT_EQ(DivergenceMeter().result().positions, 0);
}

class CompareTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  OpenEngine open(const std::string& name) const {
    return [this, name] {
      return Engine::load({.model = "tests/data/tiny-" + name + ".gguf",
                           .packed_folder = folder_,
                           .threads = 2,
                           .context = 32,
                           .outputs = 16});
    };
  }
  std::string text() const {
    std::string out;
    for (int i = 0; i < 400; ++i) out += static_cast<char>('a' + i * i % 26);
    return out;
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("nanomind-divergence-test-" + std::to_string(::getpid()));
  PerplexityOptions options_{.context = 32, .chunks = 2, .on_chunk = {}, .on_logits = {}};
};

TEST_F(CompareTest, AModelDoesNotDifferFromItself) {
  const auto same = compare(open("qwen2"), open("qwen2"), text(), options_);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->divergence.positions, 2 * scored_positions(32));
  EXPECT_NEAR(same->divergence.most, 0, 1e-9);
  EXPECT_EQ(same->divergence.same_best, 1);
  EXPECT_EQ(same->reference.perplexity, same->model.perplexity);
}

TEST_F(CompareTest, MeasuresEachAsPerplexityDoes) {
  const auto both = compare(open("qwen2"), open("qwen3"), text(), options_);
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_GT(both->divergence.mean, 1e-4);
  const auto engine = open("qwen3")();
  ASSERT_TRUE(engine);
  const auto alone = perplexity(**engine, text(), options_);
  ASSERT_TRUE(alone);
  EXPECT_EQ(both->model.perplexity, alone->perplexity);
}

TEST_F(CompareTest, RefusesModelsThatReadOtherTokens) {
  const auto done = compare(open("qwen2"), open("gemma3"), text(), options_);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("different tokens"), std::string::npos) << done.error().message;
}

TEST_F(CompareTest, PassesErrorsOn) {
  EXPECT_FALSE(compare(open("none"), open("qwen2"), text(), options_));
  EXPECT_FALSE(compare(open("qwen2"), open("none"), text(), options_));
  options_.on_logits = [](std::span<const float>) -> Result<void> { return fail(ErrorCode::io, "no"); };
  const auto done = compare(open("qwen2"), open("qwen2"), text(), options_);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "no");
}

}  // namespace
}  // namespace nanomind
