// SPDX-License-Identifier: Apache-2.0
// Products of many rows, on every ISA that has them, against double arithmetic on the dequantised weights and the float
// activations. Errors are told as a share of the root of the sum of squared terms, which is what independent rounding
// of the operands is proportional to.
#include <cmath>

#include "kernels/cpu/test_weights.h"

namespace nanomind {
namespace {

constexpr float kUntouched = -12345.0f;
constexpr int kMaxGroups = 5;
constexpr int64_t kMaxRows = 100;
constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, kMaxRows};

// Root mean square and largest error of a product. Of normal operands: an exact kernel has 12 bits and a sign per
// operand and a scale per 128 columns, a fast one activations of 8 bits per 32 columns.
struct Tolerance {
  double mean, largest;
};
constexpr Tolerance kExact{.mean = 5e-4, .largest = 4e-3};
constexpr Tolerance kFast{.mean = 8e-3, .largest = 6e-2};
// A step is 1/223 of the largest of 32 values behind a GELU, which is about three times their root mean square; steps
// of 1/127 would be at 7e-3. Weights that are rounded, too, are as `kFast`.
constexpr Tolerance kGelu{.mean = 5.5e-3, .largest = 6e-2};

float same(float x) { return x; }
float gelu(float x) { return 0.5F * x * (1 + std::erf(x * 0.70710678F)); }

struct Kind {
  const char* name;
  GemmKernels KernelTable::* kernels;
  Tolerance tolerance, of_rounded_weights;
  float (*shape)(float);  // of normal activations
};
constexpr Kind kKinds[] = {{"exact", &KernelTable::gemm, kExact, kExact, same},
                           {"fast", &KernelTable::gemm_fast, kFast, kFast, same},
                           {"behind GELU", &KernelTable::gemm_fast_gelu, kGelu, kFast, gelu}};

std::vector<float> shaped(const Kind& kind, std::vector<float> x, float scale = 1) {
  for (float& v : x) v = scale * kind.shape(v);
  return x;
}

// A value of `rows` rows as a kernel wants it: packed in pieces, from a buffer that was not zero before.
AlignedBytes pack(const GemmKernels& kernels, const std::vector<float>& x, int64_t rows, int64_t columns) {
  constexpr int64_t kPiece = 2048, kAveraged = 128;
  const size_t size = kernels.packed_bytes(rows, columns);
  AlignedBytes packed = aligned_bytes(size);
  std::memset(packed.get(), 0xFF, size);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < columns; begin += kPiece) {
      const int64_t n = std::min(kPiece, columns - begin);
      kernels.pack(&x[static_cast<size_t>(row * columns + begin)], begin, n, columns, row, packed.get());
    }
  }
  for (int64_t begin = 0; kernels.average != nullptr && begin < columns; begin += kAveraged)
    kernels.average(rows, begin, std::min(kAveraged, columns - begin), columns, packed.get());
  return packed;
}

class Errors {
 public:
  void add(double error, double scale) {
    const double relative = scale > 0 ? std::abs(error) / scale : std::abs(error);
    sum_ += relative * relative;
    largest_ = std::max(largest_, relative);
    ++count_;
  }
  void expect_within(const Tolerance& t) const {
    EXPECT_LE(largest_, t.largest);
    if (count_ >= 1000) {  // few rows have few roundings to average
      EXPECT_LE(std::sqrt(sum_ / static_cast<double>(count_)), t.mean);
    }
  }

 private:
  double sum_ = 0, largest_ = 0;
  int64_t count_ = 0;
};

void check(const GemmKernels& kernels, Gemm gemm, const Weights& w, const std::vector<float>& x, int64_t rows,
           int groups, const Tolerance& tolerance) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << groups << " groups, " << w.columns << " columns");
  const int64_t columns = w.columns, out_stride = (w.groups() + 1) * kGroupRows + 3;
  const AlignedBytes packed = pack(kernels, x, rows, columns);
  const AlignedBytes scratch = aligned_bytes(kernels.scratch_bytes(columns));
  std::vector<float> out(static_cast<size_t>(out_stride * (rows + 1)), kUntouched);
  gemm({.weights = w.packed.get(),
        .group_bytes = packed_group_bytes(w.dtype, columns),
        .groups = groups,
        .columns = columns,
        .x = packed.get(),
        .rows = rows,
        .out = out.data(),
        .out_stride = out_stride,
        .scratch = scratch.get()});
  Errors errors;
  for (int64_t i = 0; i <= rows; ++i) {
    for (int64_t n = 0; n < out_stride; ++n) {
      const float actual = out[static_cast<size_t>(i * out_stride + n)];
      if (i == rows || n >= groups * kGroupRows) {
        ASSERT_EQ(actual, kUntouched) << "row " << i << " output " << n << " is not part of the product";
        continue;
      }
      double expected = 0, squares = 0;
      for (int64_t c = 0; n < w.rows && c < columns; ++c) {
        const double product = static_cast<double>(w.values[static_cast<size_t>(n * columns + c)]) *
                               static_cast<double>(x[static_cast<size_t>(i * columns + c)]);
        expected += product;
        squares += product * product;
      }
      ASSERT_TRUE(std::isfinite(actual)) << "row " << i << " output " << n;
      errors.add(actual - expected, std::sqrt(squares));
    }
  }
  errors.expect_within(tolerance);
}

TEST_P(Kernels, GemmOfIntegerWeightsOfEveryShape) {
  for (const Kind& kind : kKinds) {
    const GemmKernels& kernels = table_.*kind.kernels;
    if (kernels.packed_bytes == nullptr) continue;
    for (const IntType& type : kIntTypes) {
      SCOPED_TRACE(testing::Message() << kind.name << " " << traits(type.dtype).name);
      const int64_t block = traits(type.dtype).block_columns;
      for (const int64_t columns : {block, 3 * block, 2304 / block * block}) {
        const Weights w = int_weights(type, kMaxGroups * kGroupRows - 5, columns, Codes::random, random_);
        const std::vector<float> x = shaped(kind, normal(static_cast<size_t>(kMaxRows * columns)));
        const Gemm gemm = kernels.multiply[static_cast<int>(type.weight)];
        for (const int64_t rows : kRowCounts) {
          if (columns > 1000 && rows % 16 != 1) continue;
          ASSERT_NO_FATAL_FAILURE(check(kernels, gemm, w, x, rows, kMaxGroups, kind.tolerance));
        }
        for (int groups = 1; groups < kMaxGroups; ++groups) {
          ASSERT_NO_FATAL_FAILURE(check(kernels, gemm, w, x, 7, groups, kind.tolerance));
        }
      }
    }
  }
}

TEST_P(Kernels, GemmOfFloatWeightsOfEveryShape) {
  for (const Kind& kind : kKinds) {
    const GemmKernels& kernels = table_.*kind.kernels;
    if (kernels.packed_bytes == nullptr) continue;
    for (const FloatType& type : kFloatTypes) {
      SCOPED_TRACE(testing::Message() << kind.name << " " << traits(type.dtype).name);
      for (const int64_t columns : {int64_t{1}, int64_t{37}, int64_t{160}, int64_t{2105}}) {
        const int64_t weight_rows = kMaxGroups * kGroupRows - 5;
        const Weights w = float_weights(type, weight_rows, columns, normal(static_cast<size_t>(weight_rows * columns)));
        const std::vector<float> x = shaped(kind, normal(static_cast<size_t>(kMaxRows * columns)));
        const Gemm gemm = kernels.multiply_float[static_cast<int>(type.weight)];
        if (gemm == nullptr) continue;
        for (const int64_t rows : kRowCounts) {
          if (columns > 1000 && rows % 16 != 1) continue;
          ASSERT_NO_FATAL_FAILURE(check(kernels, gemm, w, x, rows, kMaxGroups, kind.of_rounded_weights));
        }
      }
    }
  }
}

// What rounding takes from weights does not change what all rows have in common: where they are equal, and their values
// codes themselves, nothing is lost but bits of floats.
TEST_P(Kernels, GemmOfRoundedWeightsIsExactForTheMeanOfRows) {
  constexpr int64_t kRows = 20, kColumns = 608;
  for (const Kind& kind : kKinds) {
    const GemmKernels& kernels = table_.*kind.kernels;
    if (kernels.packed_bytes == nullptr || kernels.average == nullptr) continue;
    const int largest_code = kind.shape == gelu ? 223 : 127;
    std::uniform_int_distribution<int> codes(-32, largest_code);
    std::vector<float> x;
    for (int64_t c = 0; c < kColumns; ++c)
      x.push_back(static_cast<float>(c % kUnitColumns == 7 ? largest_code : codes(random_)));
    for (int64_t i = 1; i < kRows; ++i) x.insert(x.end(), x.begin(), x.begin() + kColumns);
    for (const FloatType& type : kFloatTypes) {
      SCOPED_TRACE(testing::Message() << kind.name << " " << traits(type.dtype).name);
      const Weights w = float_weights(type, kGroupRows, kColumns, normal(static_cast<size_t>(kGroupRows * kColumns)));
      const Gemm gemm = kernels.multiply_float[static_cast<int>(type.weight)];
      if (gemm != nullptr) check(kernels, gemm, w, x, kRows, 1, {.mean = 1e-6, .largest = 1e-5});
    }
  }
}

// More row groups and columns than a kernel unpacks at once, and several blocks of activation rows.
TEST_P(Kernels, GemmOfManyGroups) {
  for (const Kind& kind : kKinds) {
    const GemmKernels& kernels = table_.*kind.kernels;
    if (kernels.packed_bytes == nullptr) continue;
    const IntType& type = kIntTypes[static_cast<int>(IntWeight::q4_k)];
    const int64_t columns = 4352;
    const Weights w = int_weights(type, 19 * kGroupRows - 5, columns, Codes::random, random_);
    const std::vector<float> x = shaped(kind, normal(static_cast<size_t>(kMaxRows * columns)));
    const Gemm gemm = kernels.multiply[static_cast<int>(type.weight)];
    for (const int64_t rows : {int64_t{7}, int64_t{40}, kMaxRows}) {
      for (const int groups : {10, 17, 19}) {
        SCOPED_TRACE(kind.name);
        ASSERT_NO_FATAL_FAILURE(check(kernels, gemm, w, x, rows, groups, kind.tolerance));
      }
    }
  }
}

// The largest codes with the largest activations of one sign: sums that overflow would be off by many times the bound.
TEST_P(Kernels, GemmAtTheEndsOfItsRanges) {
  for (const Kind& kind : kKinds) {
    const GemmKernels& kernels = table_.*kind.kernels;
    if (kernels.packed_bytes == nullptr) continue;
    for (const IntType& type : kIntTypes) {
      SCOPED_TRACE(testing::Message() << kind.name << " " << traits(type.dtype).name);
      const int64_t columns = 512;
      const Weights w = int_weights(type, kGroupRows, columns, Codes::extreme, random_);
      for (const float value : {1.0f, -1.0f}) {
        const std::vector<float> x(static_cast<size_t>(17 * columns), value);
        ASSERT_NO_FATAL_FAILURE(
            check(kernels, kernels.multiply[static_cast<int>(type.weight)], w, x, 17, 1, {.mean = 1, .largest = 1}));
      }
    }
  }
}

// Rows of zeros, and values at the ends of what a float holds.
TEST_P(Kernels, GemmOfZerosAndOfTinyAndHugeActivations) {
  for (const Kind& kind : kKinds) {
    const GemmKernels& kernels = table_.*kind.kernels;
    if (kernels.packed_bytes == nullptr) continue;
    const IntType& type = kIntTypes[0];
    const int64_t columns = 256;
    const Weights w = int_weights(type, kGroupRows, columns, Codes::random, random_);
    for (const float scale : {0.0f, 1e-30f, 1e30f}) {
      const std::vector<float> x = shaped(kind, normal(static_cast<size_t>(9 * columns)), scale);
      ASSERT_NO_FATAL_FAILURE(
          check(kernels, kernels.multiply[static_cast<int>(type.weight)], w, x, 9, 1, kind.tolerance));
    }
  }
}

}  // namespace
}  // namespace nanomind
