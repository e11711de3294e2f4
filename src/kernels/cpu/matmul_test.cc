// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with activations, on every ISA, against double arithmetic on the same weights (dequantised
// by ops/reference from the GGUF bytes) and the same activations. Bound: 1e-6 of the sum of |w||x|, about 16 roundings
// of float.
#include <cmath>

#include "kernels/cpu/test_weights.h"

namespace nanomind {
namespace {

constexpr float kUntouched = -12345.0f;
constexpr int kMaxGroups = 5;

// Rows of activations as the kernel gets them, and as the numbers that they stand for.
struct Activations {
  int64_t stride = 0;  // units
  std::vector<ActivationUnit> units;
  std::vector<double> values;  // [kMaxTileRows, columns]

  Activations(const KernelTable& table, const std::vector<float>& x, int64_t columns, int64_t padded) {
    stride = padded / kUnitColumns + 1;
    units.resize(static_cast<size_t>(stride * kMaxTileRows));
    values.resize(static_cast<size_t>(columns * kMaxTileRows));
    for (int64_t i = 0; i < kMaxTileRows; ++i) {
      ActivationUnit* row = &units[static_cast<size_t>(i * stride)];
      table.quantize(&x[static_cast<size_t>(i * columns)], columns, row);
      for (int64_t p = 0; p < columns; ++p) {
        const ActivationUnit& u = row[p / kUnitColumns];
        const int64_t column = p / 8 * 8 + kColumnOrder[p % 8];
        const int hi = u.hi[p % kUnitColumns], lo = u.lo[p % kUnitColumns];
        values[static_cast<size_t>(i * columns + column)] = static_cast<double>(u.scale) * (256 * hi + lo);
      }
    }
  }
};

// Checks out[m, rows of `groups` groups] and that nothing beside it was written.
template <typename Value>
void expect_product(const Weights& w, const std::vector<Value>& x, int m, int groups, const std::vector<float>& out,
                    int64_t out_stride) {
  for (int64_t i = 0; i < kMaxTileRows; ++i) {
    for (int64_t n = 0; n < out_stride; ++n) {
      const float actual = out[static_cast<size_t>(i * out_stride + n)];
      if (i >= m || n >= groups * kGroupRows) {
        ASSERT_EQ(actual, kUntouched) << "row " << i << " output " << n << " is not part of the product";
        continue;
      }
      double expected = 0, magnitude = 0;
      for (int64_t c = 0; n < w.rows && c < w.columns; ++c) {
        const double product = static_cast<double>(w.values[static_cast<size_t>(n * w.columns + c)]) *
                               static_cast<double>(x[static_cast<size_t>(i * w.columns + c)]);
        expected += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(actual, expected, 1e-6 * magnitude)
          << "row " << i << " of " << m << ", output " << n << ", " << groups << " groups, " << w.columns << " columns";
    }
  }
}

void check_int(const KernelTable& table, const IntType& type, const Weights& w, const Activations& x, int m,
               int groups) {
  const PackedTraits& t = packed_traits(type.dtype);
  const int64_t out_stride = kMaxGroups * kGroupRows + 3;
  std::vector<float> out(static_cast<size_t>(out_stride * kMaxTileRows), kUntouched);
  table.matmul[static_cast<int>(type.weight)]({
      .weights = w.packed.get(),
      .group_bytes = packed_group_bytes(type.dtype, w.columns),
      .groups = groups,
      .blocks = (w.columns + t.block_columns - 1) / t.block_columns,
      .x = x.units.data(),
      .x_stride = x.stride,
      .m = m,
      .out = out.data(),
      .out_stride = out_stride,
  });
  expect_product(w, x.values, m, groups, out, out_stride);
}

int64_t padded_columns(DType dtype, int64_t columns) {
  const int64_t block = packed_traits(dtype).block_columns;
  return (columns + block - 1) / block * block;
}

TEST_P(Kernels, IntProductsOfEveryTypeShapeAndRowCount) {
  for (const IntType& type : kIntTypes) {
    SCOPED_TRACE(traits(type.dtype).name);
    const int64_t block = traits(type.dtype).block_columns;
    for (const int64_t columns : {block, 3 * block, 10 * block}) {
      const Weights w = int_weights(type, kMaxGroups * kGroupRows - 5, columns, Codes::random, random_);
      const std::vector<float> values = normal(static_cast<size_t>(kMaxTileRows * columns));
      const Activations x(table_, values, columns, padded_columns(type.dtype, columns));
      for (int m = 1; m <= kMaxTileRows; ++m) {
        for (int groups = 1; groups <= kMaxGroups; ++groups) {
          ASSERT_NO_FATAL_FAILURE(check_int(table_, type, w, x, m, groups));
        }
      }
    }
  }
}

// The largest codes with the largest activations, where sums in 16 bits or signed bytes would overflow: hi = +-127 with
// lo = 0, and lo = -128.
TEST_P(Kernels, IntProductsAtTheEndsOfTheirRanges) {
  for (const IntType& type : kIntTypes) {
    SCOPED_TRACE(traits(type.dtype).name);
    const int64_t columns = 2 * std::max<int64_t>(64, traits(type.dtype).block_columns);
    const Weights w = int_weights(type, kGroupRows, columns, Codes::extreme, random_);
    constexpr float kLowest = (127 * 256 - 128) / (127.0f * 256);
    for (const float rest : {1.0f, -1.0f, kLowest, -kLowest}) {
      std::vector<float> values(static_cast<size_t>(kMaxTileRows * columns), rest);
      for (size_t i = 0; i < values.size(); i += kUnitColumns) values[i] = 1;
      const Activations x(table_, values, columns, columns);
      for (const int m : {1, kMaxTileRows}) ASSERT_NO_FATAL_FAILURE(check_int(table_, type, w, x, m, 1));
    }
  }
}

TEST_P(Kernels, FloatProductsOfEveryTypeShapeAndRowCount) {
  for (const FloatType& type : kFloatTypes) {
    SCOPED_TRACE(traits(type.dtype).name);
    for (const int64_t columns : {int64_t{1}, int64_t{32}, int64_t{37}, int64_t{160}}) {
      const int64_t rows = kMaxGroups * kGroupRows - 5;
      const Weights w = float_weights(type, rows, columns, normal(static_cast<size_t>(rows * columns)));
      const std::vector<float> x = normal(static_cast<size_t>(kMaxTileRows * columns));
      for (int m = 1; m <= kMaxTileRows; ++m) {
        for (int groups = 1; groups <= kMaxGroups; ++groups) {
          const int64_t out_stride = kMaxGroups * kGroupRows + 3;
          std::vector<float> out(static_cast<size_t>(out_stride * kMaxTileRows), kUntouched);
          table_.matmul_float[static_cast<int>(type.weight)]({
              .weights = w.packed.get(),
              .group_bytes = packed_group_bytes(type.dtype, columns),
              .groups = groups,
              .columns = columns,
              .x = x.data(),
              .x_stride = columns,
              .m = m,
              .out = out.data(),
              .out_stride = out_stride,
          });
          ASSERT_NO_FATAL_FAILURE(expect_product(w, x, m, groups, out, out_stride));
        }
      }
    }
  }
}

// For the tests of all files.
INSTANTIATE_TEST_SUITE_P(Isas, Kernels, each_isa(), isa_name);

}  // namespace
}  // namespace nanomind
