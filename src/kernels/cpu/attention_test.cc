// SPDX-License-Identifier: Apache-2.0
// The attention kernels, on every ISA, against the definitions in double. Bounds: 1e-6 of the sum of magnitudes for
// sums of products, 1e-6 relative (a few roundings of float) for the softmax.
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/test_support.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

size_t index(int64_t i) { return static_cast<size_t>(i); }

constexpr int kWidths[] = {8, 64, 72, 80, 128, 256, 512};
constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 13};

double number(uint16_t half) { return float_from_half(half); }
double number(float x) { return x; }

class Attention : public Kernels {
 protected:
  // Normal numbers as cached ones are kept: halves or floats.
  template <typename T>
  std::vector<T> cached(size_t n) {
    std::vector<T> numbers(n);
    const std::vector<float> values = normal(n);
    for (size_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        numbers[i] = values[i];
      } else {
        numbers[i] = half_from_float(values[i]);
      }
    }
    return numbers;
  }
  template <typename T>
  void check_scores(void (*qk)(const float*, int64_t, int, const T*, int, float*));
  template <typename T>
  void check_values(void (*pv)(const float*, int, const T*, int, int, int, const float*, float*, int64_t), T garbage);
};

template <typename T>
void Attention::check_scores(void (*qk)(const float*, int64_t, int, const T*, int, float*)) {
  for (const int d : kWidths) {
    const std::vector<T> k = cached<T>(index(d) * kKvBlock);
    for (const int m : kRowCounts) {
      const int64_t stride = d + 5;
      const std::vector<float> q = normal(index(m * stride));
      std::vector<float> scores(index(m) * kKvBlock + 1, -7);
      qk(q.data(), stride, m, k.data(), d, scores.data());
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < kKvBlock; ++j) {
          double expected = 0, magnitude = 0;
          for (int c = 0; c < d; ++c) {
            const double product = double{q[index(i * stride + c)]} * number(k[index(c * kKvBlock + j)]);
            expected += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(scores[index(i * kKvBlock + j)], expected, 1e-6 * magnitude) << "d " << d << " m " << m;
        }
      }
      EXPECT_EQ(scores.back(), -7);
    }
  }
}

TEST_P(Attention, ScoresOfEveryWidthAndRowCount) {
  check_scores<uint16_t>(table_.qk);
  check_scores<float>(table_.qk_float);
}

TEST_P(Attention, RunningSoftmaxOverBlocksOfOddRanges) {
  struct Range {
    int first, last;
  };
  constexpr Range kRanges[] = {{0, 64}, {0, 1}, {63, 64}, {5, 37}, {16, 48}, {0, 17}, {31, 33}};
  for (const float scale : {1.0f, 0.125f, 3.0f}) {
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    double expected_max = -std::numeric_limits<double>::infinity(), expected_sum = 0;
    for (const auto& [first, last] : kRanges) {
      std::vector<float> scores = normal(kKvBlock, 10);
      const std::vector<float> before = scores;
      double new_max = expected_max;
      for (int j = first; j < last; ++j) new_max = std::max(new_max, double{before[index(j)] * scale});
      const double expected_correction = std::exp(expected_max - new_max);

      const float correction = table_.softmax_block(scores.data(), first, last, scale, &max, &sum);

      double total = 0;
      for (int j = 0; j < kKvBlock; ++j) {
        const bool inside = j >= first && j < last;
        const double e = inside ? std::exp(double{before[index(j)] * scale} - new_max) : 0;
        // Differences of scores near 100 carry the rounding of their float subtraction.
        ASSERT_NEAR(scores[index(j)], e, 8e-6 * e + 1e-37) << "key " << j << " of [" << first << ", " << last << ")";
        if (!inside) {
          ASSERT_EQ(scores[index(j)], 0);
        }
        total += e;
      }
      expected_sum = expected_sum * expected_correction + total;
      expected_max = new_max;
      EXPECT_NEAR(correction, expected_correction, 8e-6 * expected_correction + 1e-37);
      EXPECT_EQ(max, static_cast<float>(expected_max));
      EXPECT_NEAR(sum, expected_sum, 1e-5 * expected_sum);
    }
  }
}

TEST_P(Attention, SoftmaxOfTheFirstBlockHasNoCorrection) {
  std::vector<float> scores(kKvBlock, 2);
  float max = -std::numeric_limits<float>::infinity(), sum = 0;
  EXPECT_EQ(table_.softmax_block(scores.data(), 0, 64, 1, &max, &sum), 0);
  EXPECT_EQ(max, 2);
  EXPECT_FLOAT_EQ(sum, 64);
  std::vector<float> same(kKvBlock, 2);
  EXPECT_EQ(table_.softmax_block(same.data(), 0, 64, 1, &max, &sum), 1);
  EXPECT_FLOAT_EQ(sum, 128);
}

TEST_P(Attention, ScoresMayBeFarApart) {
  std::vector<float> scores(kKvBlock, -3e4f);
  scores[3] = 3e4f;
  float max = -std::numeric_limits<float>::infinity(), sum = 0;
  table_.softmax_block(scores.data(), 0, 64, 1, &max, &sum);
  EXPECT_EQ(scores[3], 1);
  EXPECT_EQ(scores[4], 0);
  EXPECT_EQ(sum, 1);
}

template <typename T>
void Attention::check_values(void (*pv)(const float*, int, const T*, int, int, int, const float*, float*, int64_t),
                             T garbage) {
  struct Range {
    int first, last;
  };
  for (const int d : kWidths) {
    for (const auto& [first, last] : {Range{0, 64}, Range{7, 8}, Range{3, 50}}) {
      std::vector<T> v = cached<T>(index(d) * kKvBlock);
      for (int j = 0; j < kKvBlock; ++j) {
        // Keys outside the range are not read: a NaN there would show.
        for (int c = 0; c < d && (j < first || j >= last); ++c) v[index(j * d + c)] = garbage;
      }
      for (const int m : kRowCounts) {
        const int64_t stride = d + 3;
        std::vector<float> p = normal(index(m) * kKvBlock);
        std::vector<float> correction(index(m)), out = normal(index(m * stride));
        for (int i = 0; i < m; ++i) {
          correction[index(i)] = i % 3 == 1 ? 0.0f : 1.0f / static_cast<float>(1 + i);
          for (int j = 0; j < kKvBlock; ++j) {
            if (j < first || j >= last) p[index(i * kKvBlock + j)] = 0;
          }
          for (int c = 0; c < d && correction[index(i)] == 0; ++c) out[index(i * stride + c)] = NAN;
        }
        const std::vector<float> before = out;
        pv(p.data(), m, v.data(), first, last, d, correction.data(), out.data(), stride);
        for (int i = 0; i < m; ++i) {
          for (int c = 0; c < stride; ++c) {
            const float actual = out[index(i * stride + c)], old = before[index(i * stride + c)];
            if (c >= d) {
              ASSERT_EQ(actual, old) << "column " << c << " is not part of the row";
              continue;
            }
            double expected = correction[index(i)] == 0 ? 0 : double{old} * double{correction[index(i)]};
            double magnitude = std::abs(expected);
            for (int j = first; j < last; ++j) {
              const double product = double{p[index(i * kKvBlock + j)]} * number(v[index(j * d + c)]);
              expected += product;
              magnitude += std::abs(product);
            }
            ASSERT_NEAR(actual, expected, 1e-6 * magnitude)
                << "d " << d << " m " << m << " row " << i << " column " << c;
          }
        }
      }
    }
  }
}

TEST_P(Attention, ValuesOfEveryWidthRowCountAndRange) {
  check_values<uint16_t>(table_.pv, 0x7E00);
  check_values<float>(table_.pv_float, NAN);
}

INSTANTIATE_TEST_SUITE_P(PerIsa, Attention, each_isa(), isa_name);

}  // namespace
}  // namespace nanomind
