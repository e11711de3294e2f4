// SPDX-License-Identifier: Apache-2.0
// Codes of keys and values, on every ISA: made as kv_codes.h says, the same ones on all ISAs, and read back exactly.
#include "kernels/cpu/kv_codes.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/test_support.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

constexpr int kWidths[] = {8, 32, 40, 64, 80, 120, 512};

size_t index(int64_t i) { return static_cast<size_t>(i); }
int runs_of(int d) { return (d + 31) / 32; }

struct Row {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  bool operator==(const Row&) const = default;
};

class CacheCodes : public Kernels {
 protected:
  static Row quantize(const KvCodes& kernels, const std::vector<float>& x) {
    const int d = static_cast<int>(x.size());
    Row row{std::vector<uint8_t>(x.size() + 1, 99), std::vector<uint16_t>(index(runs_of(d)) + 1, 99)};
    kernels.quantize(x.data(), d, row.codes.data(), row.scales.data());
    EXPECT_EQ(row.codes.back(), 99);
    EXPECT_EQ(row.scales.back(), 99);
    return row;
  }
  std::vector<uint8_t> bytes(int64_t n) {
    std::vector<uint8_t> b(index(n));
    for (uint8_t& x : b) x = static_cast<uint8_t>(random_());
    return b;
  }
  std::vector<uint16_t> scales(int64_t n) {
    std::vector<uint16_t> s(index(n));
    for (size_t i = 0; i < s.size(); ++i) s[i] = half_from_float(normal(1)[0]);
    return s;
  }
  void expect_values(const KvCodes& kernels, int64_t row_bytes, int d, const auto& code) {
    const std::vector<uint8_t> codes = bytes(64 * row_bytes);
    const std::vector<uint16_t> scale = scales(int64_t{64} * runs_of(d));
    for (const auto& [first, last] : {std::pair{0, 64}, {0, 1}, {63, 64}, {5, 42}}) {
      std::vector<float> out(index(64 * d), -7);
      kernels.values(codes.data(), scale.data(), first, last, d, out.data());
      for (int t = 0; t < 64; ++t) {
        for (int c = 0; c < d; ++c) {
          const float expected =
              float_from_half(scale[index(t * runs_of(d) + c / 32)]) * code(codes.data() + t * row_bytes, c);
          ASSERT_EQ(out[index(t * d + c)], t >= first && t < last ? expected : -7) << d << " wide, " << t << ", " << c;
        }
      }
    }
  }
};

// Half a step, and what rounding the scale to half and products in float add.
TEST_P(CacheCodes, EightBitsAreNearestOfTheLargestMagnitude) {
  for (const int d : kWidths) {
    for (const float deviation : {1e-3F, 1.0F, 300.0F}) {
      const std::vector<float> x = normal(index(d), deviation);
      const Row row = quantize(table_.kv_8, x);
      for (int c = 0; c < d; c += 32) {
        const int n = std::min(32, d - c);
        float largest = 0;
        for (int i = c; i < c + n; ++i) largest = std::max(largest, std::abs(x[index(i)]));
        const float scale = float_from_half(row.scales[index(c / 32)]);
        ASSERT_EQ(row.scales[index(c / 32)], half_from_float(largest / 127));
        for (int i = c; i < c + n; ++i) {
          const auto code = static_cast<int8_t>(row.codes[index(i)]);
          ASSERT_NEAR(scale * code, x[index(i)], 0.5001F * scale) << d << " wide, column " << i;
        }
      }
    }
  }
}

// Every number takes the nearest of its run's 16 levels, and a run has no more squared error than GGUF's Q4_0 has.
TEST_P(CacheCodes, FourBitsAreAtLeastAsGoodAsQ40) {
  double ours = 0, theirs = 0;
  for (const int d : kWidths) {
    for (const float deviation : {1e-3F, 1.0F, 300.0F}) {
      const std::vector<float> x = normal(index(d), deviation);
      const Row row = quantize(table_.kv_4, x);
      const auto error = [](float scale, int code, float number) {
        return std::abs(double{scale} * (code - 8) - double{number});
      };
      for (int c = 0; c < d; c += 32) {
        const int n = std::min(32, d - c);
        float largest = 0;
        for (int i = c; i < c + n; ++i) largest = std::abs(x[index(i)]) > std::abs(largest) ? x[index(i)] : largest;
        const float scale = float_from_half(row.scales[index(c / 32)]);
        const float plain = float_from_half(half_from_float(largest / -8));
        double run = 0, plain_run = 0;
        for (int i = c; i < c + n; ++i) {
          ASSERT_LT(row.codes[index(i)], 16);
          double nearest = INFINITY, plain_nearest = INFINITY;
          for (int code = 0; code < 16; ++code) {
            nearest = std::min(nearest, error(scale, code, x[index(i)]));
            plain_nearest = std::min(plain_nearest, error(plain, code, x[index(i)]));
          }
          const double actual = error(scale, row.codes[index(i)], x[index(i)]);
          ASSERT_LE(actual, nearest + 1e-5 * std::abs(double{scale})) << d << " wide, column " << i;
          run += actual * actual;
          plain_run += plain_nearest * plain_nearest;
        }
        ASSERT_LE(run, plain_run * (1 + 1e-5));
        ours += run / plain_run;
        theirs += 1;
      }
    }
  }
  EXPECT_LT(ours, 0.97 * theirs) << "the second scale is never taken";
}

TEST_P(CacheCodes, AreTheSameOnAllIsas) {
  const KernelTable scalar = *select_kernels("scalar");
  for (const int d : kWidths) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<float> x = normal(index(d), repeat < 10 ? 1.0F : 1e-6F);
      EXPECT_EQ(quantize(table_.kv_8, x), quantize(scalar.kv_8, x));
      EXPECT_EQ(quantize(table_.kv_4, x), quantize(scalar.kv_4, x));
    }
  }
}

TEST_P(CacheCodes, NothingIsNothing) {
  const std::vector<float> zeros(40);
  const Row eight = quantize(table_.kv_8, zeros), four = quantize(table_.kv_4, zeros);
  for (size_t i = 0; i < zeros.size(); ++i) {
    EXPECT_EQ(float_from_half(eight.scales[i / 32]) * static_cast<int8_t>(eight.codes[i]), 0);
    EXPECT_EQ(float_from_half(four.scales[i / 32]) * (four.codes[i] - 8), 0);
  }
}

TEST_P(CacheCodes, WhatIsNoNumberStaysWithinTheCodes) {
  for (const float odd : {INFINITY, -INFINITY, NAN, 3e38F, -3e38F}) {
    for (const size_t at : {size_t{0}, size_t{9}, size_t{39}}) {
      std::vector<float> x = normal(40);
      x[at] = odd;
      for (const uint8_t code : quantize(table_.kv_4, x).codes) EXPECT_TRUE(code < 16 || code == 99);
      for (const uint8_t code : quantize(table_.kv_8, x).codes) EXPECT_NE(code, 128);
    }
  }
}

TEST_P(CacheCodes, KeysAreReadExactly) {
  for (const int d : kWidths) {
    const std::vector<uint8_t> codes = bytes(int64_t{64} * d);
    const std::vector<uint16_t> scale = scales(int64_t{64} * runs_of(d));
    std::vector<float> eight(index(64 * d) + 1, -7), four = eight;
    table_.kv_8.keys(codes.data(), scale.data(), d, eight.data());
    table_.kv_4.keys(codes.data(), scale.data(), d, four.data());
    for (int c = 0; c < d; ++c) {
      for (int t = 0; t < 64; ++t) {
        const float s = float_from_half(scale[index(c / 32 * 64 + t)]);
        const uint8_t pair = codes[index(c * 32 + t % 32)];
        ASSERT_EQ(eight[index(c * 64 + t)], s * static_cast<int8_t>(codes[index(c * 64 + t)]));
        ASSERT_EQ(four[index(c * 64 + t)], s * static_cast<float>((t < 32 ? pair & 15 : pair >> 4) - 8));
      }
    }
    EXPECT_EQ(eight.back(), -7);
    EXPECT_EQ(four.back(), -7);
  }
}

TEST_P(CacheCodes, ValuesAreReadExactlyInTheirRange) {
  for (const int d : kWidths) {
    expect_values(table_.kv_8, d, d,
                  [](const uint8_t* row, int c) { return static_cast<float>(static_cast<int8_t>(row[c])); });
    expect_values(table_.kv_4, d / 2, d, [d](const uint8_t* row, int c) {
      const uint8_t pair = row[c % (d / 2)];
      return static_cast<float>((c < d / 2 ? pair & 15 : pair >> 4) - 8);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(PerIsa, CacheCodes, each_isa(), isa_name);

}  // namespace
}  // namespace nanomind
