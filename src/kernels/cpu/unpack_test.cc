// SPDX-License-Identifier: Apache-2.0
// Weights as the bf16 products of amx/ see them. Activations with a single one give back each weight alone, which is
// compared with its definition: cut to 8 bits after a factor of 1.0027 an error lies between -0.0052 and 0.0028 of the
// weight, and the errors of many weights cancel out.
#include <cmath>

#include "kernels/cpu/test_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kColumns = 512;
constexpr int kGroups = 3;

class Unpack : public testing::Test {
 protected:
  void SetUp() override {
    const Result<KernelTable> table = select_kernels("amx", testable_features());
    if (!table.has_value()) GTEST_SKIP() << "This CPU has no AVX-512 with VNNI, VBMI and BF16, which amx/ needs.";
    kernels_ = table->gemm_fast;
  }

  // [kColumns, kGroups * kGroupRows]
  std::vector<float> unpacked(Gemm gemm, const Weights& w) const {
    const AlignedBytes ones = aligned_bytes(kernels_.packed_bytes(kColumns, kColumns));
    std::vector<float> row(kColumns);
    for (int64_t i = 0; i < kColumns; ++i) {
      row[static_cast<size_t>(i)] = 1;
      kernels_.pack(row.data(), 0, kColumns, kColumns, i, ones.get());
      row[static_cast<size_t>(i)] = 0;
    }
    const AlignedBytes scratch = aligned_bytes(kernels_.scratch_bytes(kColumns));
    std::vector<float> out(kColumns * kGroups * kGroupRows);
    gemm({.weights = w.packed.get(),
          .group_bytes = packed_group_bytes(w.dtype, kColumns),
          .groups = kGroups,
          .columns = kColumns,
          .x = ones.get(),
          .rows = kColumns,
          .out = out.data(),
          .out_stride = kGroups * kGroupRows,
          .scratch = scratch.get()});
    return out;
  }

  // `rest` is what an error may be besides its share of the weight.
  static void expect_weights(const Weights& w, const std::vector<float>& actual, float rest) {
    SCOPED_TRACE(traits(w.dtype).name);
    double sum = 0, size = 0;
    for (int64_t c = 0; c < kColumns; ++c) {
      for (int64_t r = 0; r < w.rows; ++r) {
        const float expected = w.values[static_cast<size_t>(r * kColumns + c)];
        const float error = actual[static_cast<size_t>(c * kGroups * kGroupRows + r)] - expected;
        ASSERT_LE(std::abs(error), 0.0052f * std::abs(expected) + rest) << "row " << r << " column " << c;
        sum += expected < 0 ? -error : error;
        size += std::abs(expected);
      }
    }
    EXPECT_LT(std::abs(sum), 3e-4 * size);
  }

  GemmKernels kernels_{};
  std::mt19937 random_{1};
};

// What a block's half float of 1 is multiplied by at most.
float largest_scale(DType dtype) {
  switch (dtype) {
    case DType::q2_k: return 15;
    case DType::q3_k: return 32;
    case DType::q4_k:
    case DType::q5_k: return 63;
    case DType::q6_k: return 128;
    case DType::iq4_xs: return 32;
    default: return 1;
  }
}

TEST_F(Unpack, IntegerWeightsOfEveryType) {
  for (const IntType& type : kIntTypes) {
    const Weights w = int_weights(type, kGroups * kGroupRows, kColumns, Codes::random, random_);
    // A 4000th of a code is what the lower half of a float may hold; the largest half float is 1.
    const float scale = largest_scale(type.dtype);
    expect_weights(w, unpacked(kernels_.multiply[static_cast<int>(type.weight)], w), scale / 2000);
  }
}

TEST_F(Unpack, FloatWeightsOfEveryType) {
  for (const FloatType& type : kFloatTypes) {
    std::normal_distribution<float> normal;
    std::vector<float> values(kGroups * kGroupRows * kColumns);
    for (float& v : values) v = normal(random_);
    const Weights w = float_weights(type, kGroups * kGroupRows, kColumns, values);
    expect_weights(w, unpacked(kernels_.multiply_float[static_cast<int>(type.weight)], w), 0);
  }
}

}  // namespace
}  // namespace nanomind
