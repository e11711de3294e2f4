// SPDX-License-Identifier: Apache-2.0
// The budget counts the bytes that the device then asks for.
#include "runtime/memory_budget.h"

#include <gtest/gtest.h>

#include "device/registry.h"
#include "ops/recorder.h"
#include "tensor/packed.h"

namespace nanomind {
namespace {

constexpr int64_t kWidth = 64;

// Two layers of attention; only their keys differ.
class TwoLayers {
 public:
  TwoLayers() {
    const Value x = rec_.embed(weight({4, kWidth}));
    const Value plain = attention(x, rec_.matmul(x, weight({kWidth, kWidth})));
    const Value biased = attention(x, rec_.matmul(x, weight({kWidth, kWidth}), weight({kWidth})));
    program = std::move(rec_).finish(rec_.select_outputs(rec_.add(plain, biased)));
    zeros_.resize(kWidth * kWidth);
    for (const WeightInfo& info : program.weights)
      weights.push_back(std::as_bytes(std::span(zeros_))
                            .first(info.shape.rank == 1
                                       ? kWidth * sizeof(float)
                                       : packed_bytes(info.dtype, info.shape.rows(), info.shape.columns())));
  }
  Program program;
  std::vector<std::span<const std::byte>> weights;

 private:
  Weight weight(const Shape& shape) { return rec_.weight({"w", DType::f32, shape}); }
  Value attention(Value x, Value k) {
    return rec_.attention({.q = x, .k = k, .v = x, .layer = rec_.kv_layer({1, kWidth}), .heads = 1, .scale = 1});
  }
  Recorder rec_;
  std::vector<float> zeros_;
};

TEST(MemoryBudget, CountsKeysThatAreKeptMoreExactly) {
  const TwoLayers model;
  const auto device = std::move(*open_device("cpu", {.threads = 1}));
  for (const KvType type : kKvTypes) {
    const auto executable =
        device->compile(model.program, {.weights = model.weights, .max_tokens = 1, .max_outputs = 1, .kv_type = type});
    ASSERT_TRUE(executable) << executable.error().message;
    EXPECT_EQ(kv_bytes_per_token(model.program, type) * kKvBlockTokens, (*executable)->kv_block_bytes());
  }
  EXPECT_EQ(kv_bytes_per_token(model.program, KvType::q4_0), 36U + 36 + 68 + 36);
}

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
