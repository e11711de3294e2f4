// SPDX-License-Identifier: Apache-2.0
// Storing a token in a block: it reads back, and nothing of the other 63 changes.
#include "device/cpu/kv_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/select.h"

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
  // Largest error of a number of a run as a share of the run's largest: half a step of 127 or 8.5.
  static double step() {
    switch (GetParam()) {
      case KvType::f32: return 0;
      case KvType::f16: return 0x1p-11;
      case KvType::q8_0: return 0.51 / 127;
      case KvType::q4_0: return 1.5 / 8;  // the largest of the other sign may be cut to 7
    }
    return 0;
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
      for (int c = 0; c < d; ++c) {
        float largest = 0;
        for (int i = c / 32 * 32; i < std::min(d, c / 32 * 32 + 32); ++i)
          largest = std::max(largest, std::abs(key[static_cast<size_t>(i)]));
        for (int t = 0; t < kKvBlock; ++t) {
          const auto at = static_cast<size_t>(c * kKvBlock + t);
          if (t == slot) {
            ASSERT_NEAR(after[at], key[static_cast<size_t>(c)], step() * largest);
          } else {
            ASSERT_EQ(after[at], before[at]) << "token " << t << " changed with " << slot << ", heads of " << d;
          }
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
  EXPECT_NE(after[9], before[9]);
  for (int c = 32; c < kD; ++c)
    EXPECT_EQ(after[static_cast<size_t>(c * kKvBlock + 9)], before[static_cast<size_t>(c * kKvBlock + 9)]);
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
      return out;
    };
    std::vector<std::vector<float>> values;
    for (int t = 0; t < kKvBlock; ++t) {
      values.push_back(numbers(d));
      store_->put_value(values.back().data(), d, t, block.data());
    }
    for (int t = 0; t < kKvBlock; ++t) {
      const std::vector<float>& value = values[static_cast<size_t>(t)];
      const std::vector<float> out = read(t);
      float largest = 0;
      for (const float x : value) largest = std::max(largest, std::abs(x));
      for (int c = 0; c < d; ++c)
        ASSERT_NEAR(out[static_cast<size_t>(c)], value[static_cast<size_t>(c)], step() * largest) << t << ", " << c;
    }
    const std::vector<float> neighbour = read(11);
    store_->put_value(numbers(d).data(), d, 10, block.data());
    store_->put_value(numbers(d).data(), d, 12, block.data());
    EXPECT_EQ(read(11), neighbour);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvStoreTest, ::testing::ValuesIn(kKvTypes),
                         [](const auto& test) { return std::string(kv_type_name(test.param)); });

}  // namespace
}  // namespace nanomind::cpu
