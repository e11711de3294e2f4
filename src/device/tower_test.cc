// SPDX-License-Identifier: Apache-2.0
// Which products of models that see are computed in 8 bits, shown by their error against the interpreter: those inside
// a wide tower, but neither that of the patches nor a projector's.
#include <gtest/gtest.h>

#include <numeric>

#include "device/registry.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/difference.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kWidth = 512, kRows = 32, kHeadDim = 64, kHeads = kWidth / kHeadDim;

struct Model {
  enum class Brick { tower, projector } brick = Brick::tower;
  enum class Product { of_patches, of_values } product = Product::of_values;
  DType dtype = DType::q8_0;
  enum class Result { activated, added } result = Result::activated;
};

// One product in question. Attention makes a tower of it; its own errors are multiplied by 0.
Program record(const Model& model, testing::ProgramWeights& weights) {
  Recorder rec;
  const Value patches = rec.input(kWidth);
  Value x = model.product == Model::Product::of_patches ? patches : rec.activate(patches, Activation::silu);
  x = rec.matmul(x, weights.matrix(rec, model.dtype, kWidth, kWidth, 0.2F));
  x = model.result == Model::Result::added ? rec.add(x, patches) : rec.activate(x, Activation::silu);
  if (model.brick == Model::Brick::tower) {
    const Value seen = rec.attention({.q = patches,
                                      .k = patches,
                                      .v = patches,
                                      .layer = rec.kv_layer({kHeads, kHeadDim}),
                                      .heads = kHeads,
                                      .scale = 0.125F,
                                      .mask = Mask::none});
    x = rec.add(x, rec.scale(seen, 0.0F));
  }
  x = rec.select_outputs(x);
  return std::move(rec).finish(x);
}

double error(const Model& model, const std::string& isa, PromptPrecision precision) {
  testing::ProgramWeights weights(11);
  const Program program = record(model, weights);
  const auto views = weights.views();
  const auto device = std::move(*open_device("cpu", {.threads = 2, .isa = isa}));
  const auto executable = std::move(
      *device->compile(program, {.weights = views, .max_tokens = kRows, .max_outputs = kRows, .precision = precision}));
  const auto cache = std::move(*device->allocate(executable->kv_block_bytes()));
  std::vector<float> given(static_cast<size_t>(kRows * kWidth));
  for (size_t i = 0; i < given.size(); ++i) given[i] = std::sin(static_cast<float>(i * i % 1009));
  std::vector<const float*> pointers;
  for (int64_t i = 0; i < kRows; ++i) pointers.push_back(given.data() + i * kWidth);
  const std::vector<int32_t> tokens(kRows, -1), blocks{0};
  std::vector<int32_t> outputs(kRows);
  std::iota(outputs.begin(), outputs.end(), 0);
  const SequenceRows sequence{.blocks = blocks, .past = 0, .rows = kRows};
  const auto out = executable->run(
      {.tokens = tokens, .given = pointers, .sequences = {&sequence, 1}, .outputs = outputs, .kv_cache = cache.get()});
  const auto expected = reference::Interpreter(program, weights.floats()).run(tokens, outputs, {.given = given});
  return testing::relative_difference({out->data, expected.size()}, expected);
}

TEST(Tower, TakesBytesWhereTheyCostLittle) {
  const Model bytes[] = {{},
                         {.dtype = DType::f16},
                         {.dtype = DType::bf16},
                         {.result = Model::Result::added},
                         {.dtype = DType::f16, .result = Model::Result::added}};
  const Model exact[] = {{.brick = Model::Brick::projector},
                         {.product = Model::Product::of_patches},
                         {.brick = Model::Brick::projector, .dtype = DType::f16},
                         {.product = Model::Product::of_patches, .dtype = DType::f16}};
  for (const std::string& isa : device_isas()) {
    SCOPED_TRACE(isa);
    for (const Model& model : bytes) {
      // As device_test.cc derives it, twice where weights are rounded, too.
      EXPECT_LT(error(model, isa, PromptPrecision::fast), 2e-2);
      if (isa == "avx512") {
        EXPECT_GT(error(model, isa, PromptPrecision::fast), 1e-3) << &model - bytes;
      }
      EXPECT_LT(error(model, isa, PromptPrecision::high), 5e-4) << &model - bytes;
    }
    for (const Model& model : exact) EXPECT_LT(error(model, isa, PromptPrecision::fast), 5e-4) << &model - exact;
  }
}

}  // namespace
}  // namespace nanomind
