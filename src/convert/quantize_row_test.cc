// SPDX-License-Identifier: Apache-2.0
// Errors are compared with what follows from the formats: a block of n codes that spans its numbers has steps of
// range / (n - 1), so no error is above half a step plus what rounding the scale to half adds.
#include "convert/quantize_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/sha256.h"
#include "convert/test_numbers.h"
#include "ops/reference/dequantize.h"

namespace nanomind {
namespace {

std::vector<float> round_trip(DType dtype, const std::vector<float>& x) {
  std::vector<std::byte> bytes(row_bytes(dtype, x.size()));
  quantize_row(dtype, x.data(), static_cast<int64_t>(x.size()), bytes.data());
  std::vector<float> back(x.size());
  reference::dequantize_row(dtype, bytes.data(), static_cast<int64_t>(x.size()), back.data());
  return back;
}

// Root of the mean squared error over that of x; with a slope, each counts 1 + slope * |x| / root of the mean square.
double relative_error(DType dtype, const std::vector<float>& x, double slope = 0) {
  const std::vector<float> y = round_trip(dtype, x);
  double squares = 0, error = 0, size = 0;
  for (const float value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double weight = 1 + slope * std::abs(x[i]) / root;
    error += weight * (x[i] - y[i]) * (x[i] - y[i]);
    size += weight * x[i] * x[i];
  }
  return std::sqrt(error / size);
}

// Of 65536 normal numbers of one seed, quantised by ggml 0.26 (ggml_quantize_chunk without an importance matrix); the
// same distribution with other seeds differs by less than 1 %. The search minimises errors that count by the size of
// their numbers (`weighted`); those that count alike (`alike`) are less too.
TEST(QuantizeRow, IsCloserThanTheUsualTools) {
  struct Case {
    DType dtype;
    double alike, weighted;
  };
  const Case cases[] = {
      {DType::q4_0, 0.08609, 0.07138},  {DType::q4_1, 0.07812, 0.06358},   {DType::q5_0, 0.04265, 0.03515},
      {DType::q5_1, 0.03780, 0.03081},  {DType::q2_k, 0.29614, 0.23710},   {DType::q3_k, 0.15090, 0.12406},
      {DType::q4_k, 0.07135, 0.05826},  {DType::q5_k, 0.03617, 0.02969},   {DType::q6_k, 0.01776, 0.01420},
      {DType::q8_0, 0.00533, 0.00440},  {DType::iq4_nl, 0.07582, 0.06594}, {DType::iq4_xs, 0.07639, 0.06665},
      {DType::mxfp4, 0.11362, 0.11302},
  };
  const std::vector<float> x = normal(65536, 7);
  for (const auto& [dtype, alike, weighted] : cases) {
    EXPECT_LT(relative_error(dtype, x), 0.99 * alike) << traits(dtype).name;
    EXPECT_LT(relative_error(dtype, x, 1), 0.99 * weighted) << traits(dtype).name;
  }
}

// Of sums of integers that are the same on every machine. The digest is of what loops of single floats wrote (as built
// for x86-64 without AVX2); vectors of any width must write the same.
TEST(QuantizeRow, WritesTheSameBytesOnEveryMachine) {
  std::mt19937 random(1);
  Sha256 digest;
  for (const DType dtype : kDTypes) {
    std::vector<float> x(4096);
    for (float& v : x) {
      int sum = 0;
      for (int i = 0; i < 4; ++i) sum += static_cast<int>(random() >> 20) - 2048;
      v = static_cast<float>(sum) / 65536;
    }
    std::vector<std::byte> bytes(row_bytes(dtype, x.size()));
    quantize_row(dtype, x.data(), static_cast<int64_t>(x.size()), bytes.data());
    digest.update(bytes);
  }
  EXPECT_EQ(hex(digest.finish()), "4bc543061dcbea1931a218087690be4b56237e9c98fbc3a6548a8bb3811b4c51");
}

TEST(QuantizeRow, KeepsWhatTheTypeCanSay) {
  // Codes times a half are exact: a block of each with all codes.
  std::vector<float> steps(256);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = 0.25F * static_cast<float>(static_cast<int>(i % 16) - 8);
  for (const DType dtype : {DType::q4_0, DType::q5_0, DType::q4_1, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k})
    EXPECT_LT(relative_error(dtype, steps), 3e-3) << traits(dtype).name;
  for (const DType dtype : {DType::q4_0, DType::q5_0}) EXPECT_EQ(round_trip(dtype, steps), steps);
}

TEST(QuantizeRow, TakesAnyFiniteBlock) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(traits(dtype).name);
    const std::vector<float> zero(256, 0.0F);
    EXPECT_EQ(round_trip(dtype, zero), zero);
    std::vector<float> x(256, 0.0F);
    x[3] = 3e38F, x[200] = -3e38F;
    for (const float y : round_trip(dtype, x)) EXPECT_TRUE(std::isfinite(y) || dtype == DType::f16);
    x.assign(256, 1e-30F);
    for (const float y : round_trip(dtype, x)) EXPECT_NEAR(y, 0, 1e-6);
    x.assign(256, 0.7F);
    EXPECT_LT(relative_error(dtype, x),
              dtype == DType::mxfp4 ? 1.0 / 7 : 0.02);  // whose values can be 6 and 8 of a scale
  }
}

}  // namespace
}  // namespace nanomind
