// SPDX-License-Identifier: Apache-2.0
// Attention in integers, on every ISA that has it, against the definition in double. The bound is the rounding of
// values to bytes (to a 127th of a column's largest, some 3.5 deviations of 1000 normal numbers, that is 0.8 % of a
// deviation) and of weights to bytes (to a 255th of a block's largest: up to 1.3 % where a block of 128 has one large
// weight and all others are far below it but together as large).
#include <algorithm>
#include <cmath>

#include "kernels/cpu/test_support.h"

namespace nanomind {
namespace {

constexpr double kBound = 1.6e-2;
constexpr float kGarbage = 12345;

size_t index(int64_t i) { return static_cast<size_t>(i); }

struct Seen {
  int32_t first, end;
};

class IntegerAttentionTest : public Kernels {
 protected:
  void SetUp() override {
    Kernels::SetUp();
    if (table_.integer_attention.attend == nullptr) GTEST_SKIP() << "this ISA computes attention in floats";
  }

  void make(int64_t tokens, int d, int rows) {
    tokens_ = tokens;
    d_ = d;
    stride_ = d + 3;
    k_ = normal(index(tokens * stride_));
    v_ = normal(index(tokens * stride_));
    q_ = normal(index(rows * stride_), deviation_);
  }

  IntegerKeys coded() {
    const int64_t padded = integer_tokens(tokens_);
    keys_.assign(index(padded * d_), 99);
    values_.assign(index(padded * d_), 99);
    key_scales_.assign(index(padded), kGarbage);
    value_scales_.assign(index(d_), kGarbage);
    const IntegerKeys keys{keys_.data(), key_scales_.data(), values_.data(), value_scales_.data()};
    table_.integer_attention.code_keys(k_.data(), stride_, tokens_, d_, keys);
    table_.integer_attention.code_values(v_.data(), stride_, tokens_, d_, keys);
    return keys;
  }

  // Root mean square of the difference from the definition, as a share of that of the result.
  double error(const std::vector<Seen>& seen, float scale) {
    const auto rows = static_cast<int>(seen.size());
    std::vector<int32_t> first, end;
    for (const Seen& s : seen) {
      first.push_back(s.first);
      end.push_back(s.end);
    }
    std::vector<float> out(index(rows * stride_), kGarbage);
    table_.integer_attention.attend({.kv = coded(),
                                     .d = d_,
                                     .q = q_.data(),
                                     .q_stride = stride_,
                                     .rows = rows,
                                     .first_key = first.data(),
                                     .end_key = end.data(),
                                     .scale = scale,
                                     .out = out.data(),
                                     .out_stride = stride_});
    double off = 0, all = 0;
    for (int i = 0; i < rows; ++i) {
      const std::vector<double> expected = attend(i, seen[index(i)], scale);
      for (int c = 0; c < d_; ++c) {
        const double x = expected[index(c)];
        off += (out[index(i * stride_ + c)] - x) * (out[index(i * stride_ + c)] - x);
        all += x * x;
      }
      for (int64_t c = d_; c < stride_; ++c) EXPECT_EQ(out[index(i * stride_ + c)], kGarbage);
    }
    return std::sqrt(off / all);
  }

  std::vector<double> attend(int row, Seen seen, double scale) const {
    std::vector<double> scores;
    for (int64_t j = seen.first; j < seen.end; ++j) {
      double score = 0;
      for (int c = 0; c < d_; ++c) score += double{q_[index(row * stride_ + c)]} * k_[index(j * stride_ + c)];
      scores.push_back(score * scale);
    }
    const double most = *std::ranges::max_element(scores);
    double sum = 0;
    std::vector<double> out(index(d_));
    for (size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp(scores[j] - most);
      sum += weight;
      for (int c = 0; c < d_; ++c) out[index(c)] += weight * v_[(j + index(seen.first)) * index(stride_) + index(c)];
    }
    for (double& x : out) x /= sum;
    return out;
  }

  int64_t tokens_ = 0, stride_ = 0;
  int d_ = 0;
  float deviation_ = 1;
  std::vector<float> q_, k_, v_, key_scales_, value_scales_;
  std::vector<int16_t> keys_;
  std::vector<int8_t> values_;
};

TEST_P(IntegerAttentionTest, RowsSeeAllKeys) {
  for (const int d : {8, 64, 72, 80, 128}) {
    for (const int64_t tokens : {1, 5, 64, 127, 128, 131, 1024}) {
      for (const int rows : {1, 15, 32}) {
        make(tokens, d, rows);
        const std::vector<Seen> all(index(rows), {0, static_cast<int32_t>(tokens)});
        EXPECT_LT(error(all, 1 / std::sqrt(static_cast<float>(d))), kBound) << d << ' ' << tokens << ' ' << rows;
      }
    }
  }
}

TEST_P(IntegerAttentionTest, SharpAndFlatWeights) {
  for (const float deviation : {0.0F, 0.1F, 4.0F, 30.0F}) {
    deviation_ = deviation;
    make(700, 64, 32);
    EXPECT_LT(error(std::vector<Seen>(32, {0, 700}), 0.125F), kBound) << deviation;
  }
}

TEST_P(IntegerAttentionTest, RowsSeeGroupsOfTheirOwn) {
  make(500, 72, 32);
  std::vector<Seen> seen;
  for (int i = 0; i < 32; ++i) {
    const int32_t first = i < 10 ? 3 : i < 20 ? 130 : 131 + i;
    seen.push_back({first, i < 10 ? 9 : i < 20 ? 500 : first + 1});
  }
  EXPECT_LT(error(seen, 0.1F), kBound);
}

// One large column or one large token must not cost the others their precision.
TEST_P(IntegerAttentionTest, OutliersStayAmongThemselves) {
  make(300, 64, 8);
  for (int64_t j = 0; j < tokens_; ++j) v_[index(j * stride_ + 7)] *= 1000;
  for (int64_t c = 0; c < d_; ++c) k_[index(50 * stride_ + c)] *= -100;
  const std::vector<Seen> all(8, {0, 300});
  EXPECT_LT(error(all, 0.125F), kBound);
  // Without the column, whose error would hide that of others.
  for (int64_t j = 0; j < tokens_; ++j) v_[index(j * stride_ + 7)] = 0;
  EXPECT_LT(error(all, 0.125F), kBound);
}

INSTANTIATE_TEST_SUITE_P(Isa, IntegerAttentionTest, each_isa(), isa_name);

}  // namespace
}  // namespace nanomind
