// SPDX-License-Identifier: Apache-2.0
// Buffers that live together never overlap; those that do not share bytes.
#include "device/cpu/buffer_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace nanomind {
namespace {

TEST(BufferPlan, DisjointLivesShareBytes) {
  const std::vector<Lifetime> lives{{.bytes = 100, .first = 0, .last = 1}, {.bytes = 100, .first = 2, .last = 3}};
  const BufferPlan plan = plan_buffers(lives);
  EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
  EXPECT_EQ(plan.arena_bytes, 128U);
}

TEST(BufferPlan, RandomLivesNeverOverlapInSpaceAndTime) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lives(40);
    for (Lifetime& life : lives) {
      life.bytes = random() % 5000;
      life.first = static_cast<int>(random() % 30);
      life.last = life.first + static_cast<int>(random() % 10);
    }
    const BufferPlan plan = plan_buffers(lives);
    for (size_t i = 0; i < lives.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0U);
      EXPECT_LE(plan.offsets[i] + lives[i].bytes, plan.arena_bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool in_time = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
        const bool in_space =
            plan.offsets[i] < plan.offsets[j] + lives[j].bytes && plan.offsets[j] < plan.offsets[i] + lives[i].bytes;
        EXPECT_FALSE(in_time && in_space) << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace nanomind
