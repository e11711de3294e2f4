// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/step_size.h"

#include <gtest/gtest.h>

#include "ops/recorder.h"

namespace nanomind::cpu {
namespace {

Program product_of(int64_t columns) {
  Recorder rec;
  const Value x = rec.embed(rec.weight({"table", DType::f32, {8, columns}}));
  const Value y = rec.select_outputs(rec.matmul(x, rec.weight({"w", DType::f32, {8, columns}})));
  return std::move(rec).finish(y);
}

// By hand: half of the cache, divided by two bytes per column, down to a multiple of 16.
TEST(StepSize, ActivationsTakeHalfOfTheCache) {
  EXPECT_EQ(step_tokens(product_of(8960), 3 << 20), 80);    // RK3588: 1572864 / 17920 = 87
  EXPECT_EQ(step_tokens(product_of(1536), 3 << 20), 256);   // 512, more than gains
  EXPECT_EQ(step_tokens(product_of(8960), 32 << 20), 256);  // a server's cache
  EXPECT_EQ(step_tokens(product_of(8960), 512 << 10), 64);  // RK3566: 14 would hardly reuse a weight
  EXPECT_EQ(step_tokens(product_of(8960), 0), 256);
}

}  // namespace
}  // namespace nanomind::cpu
