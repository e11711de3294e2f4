// SPDX-License-Identifier: Apache-2.0
#include "text/token_matcher.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

TEST(TokenMatcher, TakesTheLeftmostAndThenTheLongest) {
  TokenMatcher matcher;
  matcher.add("ab", 1);
  matcher.add("abcd", 2);
  matcher.add("bcde", 3);
  matcher.add("", 4);
  matcher.add("ab", 5);
  const auto match = matcher.find("xxabcde", 0);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->id, 2);
  EXPECT_EQ(match->begin, 2u);
  EXPECT_EQ(match->end, 6u);
  EXPECT_EQ(matcher.find("xabc", 0)->id, 1);  // the longer one is not complete
  EXPECT_EQ(matcher.find("abcde", 1)->id, 3);
  EXPECT_FALSE(matcher.find("xabc", 2));
  EXPECT_FALSE(matcher.find("", 0));
  EXPECT_FALSE(TokenMatcher().find("abc", 0));
}

}  // namespace
}  // namespace nanomind
