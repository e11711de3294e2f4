// SPDX-License-Identifier: Apache-2.0
// What is guessed, and when guessing pays; expected values by hand.
#include "runtime/draft.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

std::vector<TokenId> looked_up(const std::vector<TokenId>& tokens, int64_t most) {
  std::vector<TokenId> out;
  make_drafter({.kind = SpeculationOptions::Kind::lookup})->draft(tokens, most, out);
  return out;
}

using Tokens = std::vector<TokenId>;

TEST(LookupDrafter, WhatFollowedTheSameTokensComesAgain) {
  EXPECT_EQ(looked_up({1, 2, 3, 4, 5, 9, 2, 3}, 3), (Tokens{4, 5, 9}));
  EXPECT_EQ(looked_up({1, 2, 3, 4, 5, 9, 2, 3}, 1), (Tokens{4}));
  // The longer run wins over the later place.
  EXPECT_EQ(looked_up({7, 2, 3, 4, 8, 8, 3, 4, 5, 7, 2, 3, 4}, 2), (Tokens{8, 8}));
  // Of equal runs the later place.
  EXPECT_EQ(looked_up({2, 3, 4, 0, 2, 3, 5, 1, 2, 3}, 1), (Tokens{5}));
  // Up to the end of the text and not beyond; a place may overlap the run.
  EXPECT_EQ(looked_up({6, 6, 6, 6}, 5), (Tokens{6}));
}

TEST(LookupDrafter, WithoutAnEqualPairThereIsNoGuess) {
  EXPECT_TRUE(looked_up({1, 2, 3, 4, 5}, 4).empty());
  EXPECT_TRUE(looked_up({3, 4, 5, 3}, 4).empty());  // one token alone
  EXPECT_TRUE(looked_up({1}, 4).empty());
  EXPECT_TRUE(looked_up({}, 4).empty());
}

TEST(DraftGauge, KnowsThePlainStepBeforeItGuesses) {
  DraftGauge gauge(4);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(gauge.length(), 0);
    gauge.record(0, 0, 10);
  }
  EXPECT_EQ(gauge.length(), 4);
}

TEST(DraftGauge, GoodGuessesGoOnAndPoorOnesPauseLongerEachTime) {
  DraftGauge good(4), poor(4);
  for (DraftGauge* gauge : {&good, &poor}) {
    gauge->record(0, 0, 10);
    gauge->record(0, 0, 10);
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(good.length(), 4);
    good.record(4, 4, 20);  // five tokens in the time of two
  }
  int64_t pause = 16;
  for (int round = 0; round < 7; ++round) {
    int64_t tried = 0;
    while (poor.length() > 0) {
      poor.record(poor.length(), 0, 15);  // one token in the time of one and a half
      ++tried;
    }
    EXPECT_EQ(tried, 6);
    int64_t waited = 0;
    while (poor.length() == 0) {
      poor.record(0, 0, 10);
      ++waited;
    }
    EXPECT_EQ(waited, pause);
    pause = std::min<int64_t>(2 * pause, 512);
  }
}

TEST(DraftGauge, GuessesAsManyAsAreRight) {
  DraftGauge gauge(8);
  gauge.record(0, 0, 10);
  gauge.record(0, 0, 10);
  for (int i = 0; i < 40; ++i) gauge.record(gauge.length(), std::min<int64_t>(gauge.length(), 2), 12);
  EXPECT_GE(gauge.length(), 2);
  EXPECT_LE(gauge.length(), 4);
}

}  // namespace
}  // namespace nanomind
