// SPDX-License-Identifier: Apache-2.0
// The budget counts the bytes that the device then asks for.
#include "runtime/memory_budget.h"

#include <gtest/gtest.h>

#include "device/registry.h"

namespace nanomind {
namespace {

TEST(MemoryBudget, CountsTheCacheOfEveryTypeAsTheDeviceDoes) {
  // Layers are declared but never used: only their caches matter here.
  Program program;
  program.values = {{.rows = Rows::tokens, .columns = 1}, {.rows = Rows::outputs, .columns = 1}};
  program.kv_layers = {
      {.kv_heads = 3, .head_dim = 64}, {.kv_heads = 1, .head_dim = 40}, {.kv_heads = 2, .head_dim = 8}};
  program.ops = {op::SelectRows{.out = 1, .x = 0}};
  program.output = 1;
  const auto device = std::move(*open_device("cpu", {.threads = 1}));
  for (const KvType type : kKvTypes) {
    const auto executable =
        std::move(*device->compile(program, {.weights = {}, .max_tokens = 1, .max_outputs = 1, .kv_type = type}));
    EXPECT_EQ(kv_bytes_per_token(program, type) * kKvBlockTokens, executable->kv_block_bytes()) << kv_type_name(type);
  }
}

}  // namespace
}  // namespace nanomind
