// SPDX-License-Identifier: Apache-2.0
// Storing a token in a block: it reads back, and nothing of the other 63 changes.
#include "device/cpu/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/select.h"
#include "tests/support/difference.h"

namespace nanomind::cpu {
namespace {

class KvStoreTest : public ::testing::TestWithParam<KvType> {
 protected:
  KvStoreTest() : kernels_(*select_kernels("")), store_(KvStore::make(GetParam(), kernels_)) {}

  std::vector<float> numbers(int n) {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(random_);
    return x;
  }
  // Bound of a row's error as a share of its length, for normal numbers and runs of 8 to 32: half a step, which is
  // uniform, of a scale by the largest, which is about two; so 2 / 127 / sqrt(12), with as much again for single rows.
  static double bound() {
    switch (GetParam()) {
      case KvType::f32: return 0;
      case KvType::f16: return 0x1p-11;
      case KvType::q8_0: return 0.01;
      case KvType::q4_0: return 0.2;
    }
    return 0;
  }
  static double error(const float* actual, const std::vector<float>& expected) {
    return testing::relative_difference({actual, expected.size()}, expected);
  }

  KernelTable kernels_;
  std::unique_ptr<KvStore> store_;
  std::mt19937 random_{3};
};

struct Block {
  Block(KvType type, int d) : bytes(kv_row_bytes(type, d) * kKvBlock / 64 + 1) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes.data()); }
  struct alignas(64) Line {
    std::byte b[64];
  };
  std::vector<Line> bytes;
};

TEST_P(KvStoreTest, KeysKeepToTheirColumns) {
  for (const int d : {8, 40, 64, 512}) {
    Block block(GetParam(), d);
    std::vector<float> before(static_cast<size_t>(d * kKvBlock)), after = before;
    for (int t = 0; t < kKvBlock; ++t) store_->put_key(numbers(d).data(), d, d, t, block.data());
    for (const int slot : {0, 5, 31, 32, 37, 63}) {
      store_->get_keys(block.data(), d, before.data());
      const std::vector<float> key = numbers(d);
      store_->put_key(key.data(), d, d, slot, block.data());
      store_->get_keys(block.data(), d, after.data());
      for (int t = 0; t < kKvBlock; ++t) {
        const float *row = after.data() + t * d, *old = before.data() + t * d;
        if (t == slot) {
          ASSERT_LE(error(row, key), bound()) << "heads of " << d;
        } else {
          ASSERT_TRUE(std::equal(row, row + d, old)) << "token " << t << " changed with " << slot << ", heads of " << d;
        }
      }
    }
  }
}

TEST_P(KvStoreTest, PartOfAKeyLeavesTheRest) {
  constexpr int kD = 80;
  Block block(GetParam(), kD);
  std::vector<float> before(size_t{kD} * kKvBlock), after = before;
  for (int t = 0; t < kKvBlock; ++t) store_->put_key(numbers(kD).data(), kD, kD, t, block.data());
  store_->get_keys(block.data(), kD, before.data());
  store_->put_key(numbers(kD).data(), 32, kD, 9, block.data());
  store_->get_keys(block.data(), kD, after.data());
  const float *row = after.data() + 9 * kD, *old = before.data() + 9 * kD;
  EXPECT_NE(row[0], old[0]);
  EXPECT_TRUE(std::equal(row + 32, row + kD, old + 32));
}

// Large numbers in a few columns, as keys of real models have, cost the others no accuracy.
TEST_P(KvStoreTest, OutliersAreSpread) {
  constexpr int kD = 128;
  Block block(GetParam(), kD);
  std::vector<float> key = numbers(kD), out(size_t{kD} * kKvBlock);
  key[5] = 40;
  key[77] = -60;
  store_->put_key(key.data(), kD, kD, 3, block.data());
  store_->get_keys(block.data(), kD, out.data());
  // Unmixed, the error would be half a step of 60, 60 / 127 / sqrt(12) in q8_0, in each of 32 columns: 0.013 of 60.
  EXPECT_LE(error(out.data() + 3 * kD, key), bound() / 2);
}

// Values are seen through sums of one weighted by 1.
TEST_P(KvStoreTest, ValuesKeepToTheirRows) {
  for (const int d : {8, 40, 64, 512}) {
    Block block(GetParam(), d);
    const auto read = [&](int t) {
      std::vector<float> p(kKvBlock), out(static_cast<size_t>(d));
      p[static_cast<size_t>(t)] = 1;
      const float correction = 0;
      store_->pv(p.data(), 1, block.data(), t, t + 1, d, &correction, out.data());
      store_->mix(out.data(), d);
      return out;
    };
    std::vector<std::vector<float>> values;
    for (int t = 0; t < kKvBlock; ++t) {
      values.push_back(numbers(d));
      store_->put_value(values.back().data(), d, t, block.data());
    }
    for (int t = 0; t < kKvBlock; ++t) {
      ASSERT_LE(error(read(t).data(), values[static_cast<size_t>(t)]), bound()) << "heads of " << d;
    }
    const std::vector<float> neighbour = read(11);
    store_->put_value(numbers(d).data(), d, 10, block.data());
    store_->put_value(numbers(d).data(), d, 12, block.data());
    EXPECT_EQ(read(11), neighbour);
  }
}

TEST_P(KvStoreTest, ScoresOfMixedQueriesAreThoseOfTheRows) {
  for (const int d : {8, 24, 40, 56, 64}) {
    Block block(GetParam(), d);
    std::vector<float> keys(static_cast<size_t>(d * kKvBlock)), scores(kKvBlock);
    for (int t = 0; t < kKvBlock; ++t) store_->put_key(numbers(d).data(), d, d, t, block.data());
    store_->get_keys(block.data(), d, keys.data());
    const std::vector<float> q = numbers(d);
    std::vector<float> mixed = q;
    store_->mix(mixed.data(), d);
    store_->qk(mixed.data(), 1, block.data(), d, scores.data());
    for (int t = 0; t < kKvBlock; ++t) {
      double expected = 0;
      for (int c = 0; c < d; ++c)
        expected += double{q[static_cast<size_t>(c)]} *
                    double{keys[static_cast<size_t>(t) * static_cast<size_t>(d) + static_cast<size_t>(c)]};
      EXPECT_NEAR(scores[static_cast<size_t>(t)], expected, 1e-5 * d);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvStoreTest, ::testing::ValuesIn(kKvTypes),
                         [](const auto& test) { return std::string(kv_type_name(test.param)); });

}  // namespace
}  // namespace nanomind::cpu
