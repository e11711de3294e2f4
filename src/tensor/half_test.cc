// SPDX-License-Identifier: Apache-2.0
// Every half and every rounding boundary, against the formats' definitions evaluated in double.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nanomind {
namespace {

// IEEE 754-2019 binary16: 5 exponent bits with bias 15, 10 fraction bits.
double half_value(int h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, EveryFiniteValueConvertsExactlyBothWays) {
  for (int h = 0; h < 0x10000; ++h) {
    if ((h >> 10 & 31) == 31) continue;
    const float f = float_from_half(static_cast<uint16_t>(h));
    ASSERT_EQ(f, half_value(h)) << h;
    ASSERT_EQ(half_from_float(f), h) << h;
  }
}

TEST(Half, RoundsToNearestAndTiesToEven) {
  for (int h = 0; h < 0x7BFF; ++h) {
    const auto middle = static_cast<float>((half_value(h) + half_value(h + 1)) / 2);  // exact: 12 bits
    ASSERT_EQ(half_from_float(middle), h % 2 == 0 ? h : h + 1) << h;
    ASSERT_EQ(half_from_float(std::nextafterf(middle, 0)), h) << h;
    ASSERT_EQ(half_from_float(std::nextafterf(middle, 1e9f)), h + 1) << h;
    ASSERT_EQ(half_from_float(-middle), 0x8000 | (h % 2 == 0 ? h : h + 1)) << h;
  }
}

TEST(Half, OverflowInfinityAndNan) {
  EXPECT_EQ(half_from_float(65519.996f), 0x7BFF);
  EXPECT_EQ(half_from_float(65520.0f), 0x7C00);
  EXPECT_EQ(half_from_float(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_TRUE(std::isinf(float_from_half(0x7C00)));
  EXPECT_TRUE(std::isnan(float_from_half(half_from_float(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Bf16, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(float_from_bf16(0x3FC0), 1.5f);
  EXPECT_EQ(bf16_from_float(1.5f), 0x3FC0);
  EXPECT_EQ(bf16_from_float(1.0f + 0x1p-8f), 0x3F80);  // tie, even below
  EXPECT_EQ(bf16_from_float(1.0f + 0x3p-8f), 0x3F82);  // tie, even above
  EXPECT_EQ(bf16_from_float(1.0f + 0x1p-8f + 0x1p-20f), 0x3F81);
  EXPECT_EQ(bf16_from_float(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace nanomind
