// SPDX-License-Identifier: Apache-2.0
// Tile instructions as the kernels of amx/ use them, against integers that bf16 and float hold exactly. Where the CPU
// has no tiles this tests the emulator by which all tests of that folder's kernels run here.
#include "kernels/cpu/amx/tiles.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <thread>

#include "kernels/cpu/test_features.h"
#include "kernels/cpu/test_support.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

constexpr float kUntouched = -12345.0f;
constexpr int kColumns = 16;

// Activations a[m][k] and weights b[k][n] as tiles, and the sums.
struct Operands {
  uint16_t a[amx::kBlockRows][amx::kStepColumns];
  uint16_t b[2][amx::kTileRows][kColumns][2];
  float c[amx::kBlockRows + 1][2 * kColumns];
};

int activation(int m, int k) { return (5 * m + 3 * k) % 17 - 8; }
int weight(int k, int n) { return (7 * k + 11 * n) % 13 - 6; }

// Runs one step of a product of `rows` rows with a pair of weight tiles, added to what `c` holds.
void run_step(int rows, Operands& o) {
  constexpr int64_t kStride = sizeof o.c[0];
  amx::configure_tiles(rows);
  amx::load_tile<amx::kActivations>(o.a[0], amx::kTileRowBytes);
  amx::load_tile<amx::kWeights>(o.b[0], amx::kTileRowBytes);
  amx::load_tile<amx::kWeights + 1>(o.b[1], amx::kTileRowBytes);
  amx::load_tile<amx::kSums>(o.c[0], kStride);
  amx::load_tile<amx::kSums + 1>(o.c[0] + kColumns, kStride);
  amx::multiply_tiles<0, 0>();
  amx::multiply_tiles<0, 1>();
  amx::store_tile<amx::kSums>(o.c[0], kStride);
  amx::store_tile<amx::kSums + 1>(o.c[0] + kColumns, kStride);
  if (rows > amx::kTileRows) {
    float* second = o.c[amx::kTileRows];
    amx::load_tile<amx::kActivations + 1>(o.a[amx::kTileRows], amx::kTileRowBytes);
    amx::zero_tile<amx::kSums + 2>();
    amx::zero_tile<amx::kSums + 3>();
    amx::multiply_tiles<1, 0>();
    amx::multiply_tiles<1, 1>();
    amx::store_tile<amx::kSums + 2>(second, kStride);
    amx::store_tile<amx::kSums + 3>(second + kColumns, kStride);
  }
  amx::release_tiles();
}

void expect_product(int rows) {
  SCOPED_TRACE(rows);
  Operands o;
  for (int m = 0; m < amx::kBlockRows; ++m) {
    for (int k = 0; k < amx::kStepColumns; ++k) o.a[m][k] = bf16_from_float(static_cast<float>(activation(m, k)));
  }
  for (int k = 0; k < amx::kStepColumns; ++k) {
    for (int n = 0; n < 2 * kColumns; ++n) {
      o.b[n / kColumns][k / 2][n % kColumns][k % 2] = bf16_from_float(static_cast<float>(weight(k, n)));
    }
  }
  for (auto& row : o.c) std::fill(std::begin(row), std::end(row), kUntouched);
  run_step(rows, o);
  for (int m = 0; m <= amx::kBlockRows; ++m) {
    for (int n = 0; n < 2 * kColumns; ++n) {
      float expected = m < amx::kTileRows || m >= rows ? kUntouched : 0;
      for (int k = 0; m < rows && k < amx::kStepColumns; ++k) {
        expected += static_cast<float>(activation(m, k) * weight(k, n));
      }
      ASSERT_EQ(o.c[m][n], expected) << m << ", " << n;
    }
  }
}

class Tiles : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(testable_features() & kCpuAmx, 0u); }
};

TEST_F(Tiles, StepsOfEveryNumberOfRows) {
  for (int rows = 1; rows <= amx::kBlockRows; ++rows) ASSERT_NO_FATAL_FAILURE(expect_product(rows));
}

TEST_F(Tiles, EachThreadHasItsOwn) {
  std::thread other([] {
    for (int i = 0; i < 20; ++i) expect_product(5);
  });
  for (int i = 0; i < 20; ++i) expect_product(21);
  other.join();
}

TEST_F(Tiles, NumbersBelowTheNormalOnesAreZero) {
  Operands o{};
  o.a[0][0] = 1;                                                          // the smallest bf16 number there is,
  o.b[0][0][0][0] = bf16_from_float(1e30f);                               // times this would be 9e-11
  o.a[0][1] = o.b[0][0][1][1] = bf16_from_float(std::sqrt(FLT_MIN) / 2);  // a product below the normal numbers
  o.c[0][2] = FLT_MIN / 2;                                                // a sum that is one from the start
  o.c[0][3] = FLT_MIN;
  run_step(1, o);
  EXPECT_EQ(o.c[0][0], 0);
  EXPECT_EQ(o.c[0][1], 0);
  EXPECT_EQ(o.c[0][2], 0);
  EXPECT_EQ(o.c[0][3], FLT_MIN);
}

// 16 x 16 x 32 products and as many sums per instruction, six instructions per round.
TEST_F(Tiles, PeakCountsItsOperations) {
  const Result<KernelTable> table = select_kernels("amx", testable_features());
  if (!table.has_value())
    GTEST_SKIP() << "This CPU has no AVX-512 with VNNI, VBMI and BF16: nothing of amx/ runs on it.";
  EXPECT_EQ(table->peak(3), 3 * 6 * 2 * 16 * 16 * 32);
}

}  // namespace
}  // namespace nanomind
