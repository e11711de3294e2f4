// SPDX-License-Identifier: Apache-2.0
// Logits that are logarithms of probabilities give these back, whatever is added to all of them.
#include "runtime/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nanomind {
namespace {

TEST(Logprobs, AreThoseOfTheSoftmax) {
  std::vector<float> logits;
  for (const double p : {0.1, 0.2, 0.3, 0.4}) logits.push_back(static_cast<float>(std::log(p) + 50));
  const LogprobRow row = logprobs_of(logits, 1, 2);
  EXPECT_EQ(row.chosen.token, 1);
  EXPECT_NEAR(row.chosen.logprob, std::log(0.2), 1e-5);
  ASSERT_EQ(row.top.size(), 2U);
  EXPECT_EQ(row.top[0].token, 3);
  EXPECT_NEAR(row.top[0].logprob, std::log(0.4), 1e-5);
  EXPECT_EQ(row.top[1].token, 2);
}

TEST(Logprobs, TiesGoByIdAndNeverIsMinusInfinity) {
  const float never = -std::numeric_limits<float>::infinity();
  const LogprobRow row = logprobs_of(std::vector<float>{0, never, 0}, 1, 9);
  EXPECT_EQ(row.chosen.logprob, -std::numeric_limits<double>::infinity());
  ASSERT_EQ(row.top.size(), 3U);
  EXPECT_EQ(row.top[0].token, 0);
  EXPECT_EQ(row.top[1].token, 2);
  EXPECT_NEAR(row.top[1].logprob, std::log(0.5), 1e-9);
  EXPECT_TRUE(logprobs_of(std::vector<float>{0, 1}, 0, 0).top.empty());
}

}  // namespace
}  // namespace nanomind
