// SPDX-License-Identifier: Apache-2.0
// Quantisation, normalisation and activation functions, on every ISA, against their definitions in double.
#include <cmath>
#include <limits>

#include "kernels/cpu/test_support.h"
#include "ops/reference/math.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

class Elementwise : public Kernels {};

constexpr int kLengths[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 64, 70, 259};

TEST_P(Elementwise, QuantizeFollowsItsDefinition) {
  for (const int n : kLengths) {
    for (const float deviation : {1.0f, 1e-20f, 1e20f}) {
      const std::vector<float> x = normal(static_cast<size_t>(n), deviation);
      const int units = (n + kUnitColumns - 1) / kUnitColumns;
      std::vector<ActivationUnit> out(static_cast<size_t>(units) + 1);
      std::memset(static_cast<void*>(out.data()), 0x55, out.size() * sizeof(ActivationUnit));
      table_.quantize(x.data(), n, out.data());
      EXPECT_EQ(out.back().sum[1], 0x55555555) << "writes past the last unit";
      for (int u = 0; u < units; ++u) {
        const ActivationUnit& unit = out[static_cast<size_t>(u)];
        float max = 0;
        for (int c = 32 * u; c < std::min(n, 32 * u + 32); ++c)
          max = std::max(max, std::abs(x[static_cast<size_t>(c)]));
        ASSERT_FLOAT_EQ(unit.scale, max / (127 * 256));
        int sum[2] = {};
        for (int p = 0; p < kUnitColumns; ++p) {
          const int c = 32 * u + p / 8 * 8 + kColumnOrder[p % 8];
          const int q = 256 * unit.hi[p] + unit.lo[p];
          const double exact = c < n ? x[static_cast<size_t>(c)] / static_cast<double>(unit.scale) : 0;
          // Half a step, and the rounding of a quotient near 32512 in float.
          ASSERT_NEAR(q, exact, 0.5 + 0.004) << "column " << c << " of " << n;
          ASSERT_LE(std::abs(q), 127 * 256);
          sum[p / 16] += q;
        }
        ASSERT_EQ(unit.sum[0], sum[0]);
        ASSERT_EQ(unit.sum[1], sum[1]);
        ASSERT_FLOAT_EQ(unit.scaled_sum, unit.scale * static_cast<float>(sum[0] + sum[1]));
      }
    }
  }
}

TEST_P(Elementwise, QuantizeOfZerosAndOfTheTiniest) {
  for (const float x : {0.0f, -0.0f, std::numeric_limits<float>::denorm_min()}) {
    const std::vector<float> values(40, x);
    ActivationUnit out[2];
    table_.quantize(values.data(), 40, out);
    for (const ActivationUnit& unit : out) {
      EXPECT_EQ(unit.scale, 0);
      EXPECT_EQ(unit.sum[0], 0);
      EXPECT_EQ(unit.sum[1], 0);
      for (int p = 0; p < kUnitColumns; ++p) EXPECT_TRUE(unit.hi[p] == 0 && unit.lo[p] == 0);
    }
  }
}

TEST_P(Elementwise, QuantizeOfNonFiniteInputIsFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    std::vector<float> x = normal(32);
    x[5] = bad;
    ActivationUnit out;
    table_.quantize(x.data(), 32, &out);
    EXPECT_TRUE(std::isfinite(out.scale));
    int sum[2] = {};
    for (int p = 0; p < kUnitColumns; ++p) sum[p / 16] += 256 * out.hi[p] + out.lo[p];
    EXPECT_EQ(out.sum[0], sum[0]);
    EXPECT_EQ(out.sum[1], sum[1]);
  }
}

TEST_P(Elementwise, RmsNormAlsoInPlace) {
  for (const int n : {1, 7, 64, 576, 1539}) {
    for (const float deviation : {1.0f, 1e-4f, 1e4f}) {
      const auto size = static_cast<size_t>(n);
      std::vector<float> x = normal(size, deviation);
      const std::vector<float> weight = normal(size);
      std::vector<float> expected(size), out(size + 1, -7);
      reference::rms_norm(x, weight, 1e-6, expected);
      table_.rms_norm(x.data(), weight.data(), n, 1e-6f, out.data());
      table_.rms_norm(x.data(), weight.data(), n, 1e-6f, x.data());
      for (size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(out[i], expected[i], 1e-6 * std::abs(expected[i])) << "n " << n;
        ASSERT_EQ(x[i], out[i]);
      }
      EXPECT_EQ(out.back(), -7);
    }
  }
}

using Gated = void (*)(const float*, const float*, int64_t, float*);

// Error in units of 1e-6: of the result for inputs around zero, of |gate * up| where the exponential's argument is
// large.
void check_gated(Gated kernel, double (*reference)(double), const std::vector<float>& gate,
                 const std::vector<float>& up) {
  const size_t n = gate.size();
  std::vector<float> out(n + 1, -7), over_gate = gate, over_up = up;
  kernel(gate.data(), up.data(), static_cast<int64_t>(n), out.data());
  kernel(over_gate.data(), up.data(), static_cast<int64_t>(n), over_gate.data());
  kernel(gate.data(), over_up.data(), static_cast<int64_t>(n), over_up.data());
  for (size_t i = 0; i < n; ++i) {
    const double expected = reference(gate[i]) * double{up[i]};
    const double bound = std::abs(gate[i]) < 3 ? std::abs(expected) : std::abs(double{gate[i]} * double{up[i]});
    ASSERT_NEAR(out[i], expected, 2e-6 * bound) << "gate " << gate[i] << " up " << up[i];
    ASSERT_EQ(over_gate[i], out[i]);
    ASSERT_EQ(over_up[i], out[i]);
  }
  EXPECT_EQ(out.back(), -7);
}

TEST_P(Elementwise, SwigluAndGegluOfEveryLength) {
  for (const int n : kLengths) {
    const std::vector<float> gate = normal(static_cast<size_t>(n), 3), up = normal(static_cast<size_t>(n));
    ASSERT_NO_FATAL_FAILURE(check_gated(table_.swiglu, reference::silu, gate, up));
    ASSERT_NO_FATAL_FAILURE(check_gated(table_.geglu, reference::gelu_tanh, gate, up));
  }
}

TEST_P(Elementwise, SwigluAndGegluAtTheEnds) {
  std::vector<float> gate;
  for (float g = -100; g <= 100; g += 0.37f) gate.push_back(g);
  for (const float g : {0.0f, 1e-30f, 88.0f, -87.3f, -88.0f, 100.0f, -100.0f, 1e4f, -1e4f, 1e20f, -1e20f})
    gate.push_back(g);
  const std::vector<float> up(gate.size(), 1.5f);
  ASSERT_NO_FATAL_FAILURE(check_gated(table_.swiglu, reference::silu, gate, up));
  ASSERT_NO_FATAL_FAILURE(check_gated(table_.geglu, reference::gelu_tanh, gate, up));
}

// silu(-g) with up = 1 / g is -1 / (1 + exp(g)), which for large g shows the exponential alone.
TEST_P(Elementwise, ExponentialIsAccurateToTwoUlps) {
  std::vector<float> gate, up;
  for (float g = 18; g < 80; g += 0.0137f) {
    gate.push_back(-g);
    up.push_back(1);
  }
  std::vector<float> out(gate.size());
  table_.swiglu(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double expected = double{gate[i]} / (1 + std::exp(-double{gate[i]}));
    ASSERT_NEAR(out[i], expected, 4e-7 * std::abs(expected)) << gate[i];  // exp, sum, quotient, product
  }
}

TEST_P(Elementwise, ToHalfRoundsLikeTheDefinition) {
  for (const int n : kLengths) {
    std::vector<float> x = normal(static_cast<size_t>(n), n % 2 ? 1.0f : 1e-6f);
    x[0] = 65519.0f;
    std::vector<uint16_t> out(static_cast<size_t>(n) + 1, 0x1234);
    table_.to_half(x.data(), n, out.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], half_from_float(x[i])) << x[i];
    EXPECT_EQ(out.back(), 0x1234);
  }
}

INSTANTIATE_TEST_SUITE_P(PerIsa, Elementwise, each_isa(), isa_name);

}  // namespace
}  // namespace nanomind
