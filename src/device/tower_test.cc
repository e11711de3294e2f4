// SPDX-License-Identifier: Apache-2.0
// Which products of models that see are computed in 8 bits, shown by their error against the interpreter: those inside
// a wide tower, but neither that of the patches nor a projector's, and in a narrow one not those of what norms make.
#include <gtest/gtest.h>

#include <numeric>

#include "device/registry.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/difference.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kRows = 32, kHeadDim = 64, kWide = 512, kNarrow = 256;

struct Model {
  enum class Brick { tower, projector } brick = Brick::tower;
  enum class Product { of_patches, of_values, of_norm } product = Product::of_values;
  DType dtype = DType::q8_0;
  enum class Result { activated, added } result = Result::activated;
  int64_t width = kWide;
};

// One product in question. Attention makes a tower of it; its own errors are multiplied by 0.
Program record(const Model& model, testing::ProgramWeights& weights) {
  Recorder rec;
  const int64_t width = model.width, heads = width / kHeadDim;
  const Value patches = rec.input(width);
  Value x = patches;
  if (model.product == Model::Product::of_values) x = rec.activate(patches, Activation::silu);
  if (model.product == Model::Product::of_norm) x = rec.layer_norm(patches, {}, {}, 1e-6F);
  x = rec.matmul(x, weights.matrix(rec, model.dtype, width, width, 0.2F));
  x = model.result == Model::Result::added ? rec.add(x, patches) : rec.activate(x, Activation::silu);
  if (model.brick == Model::Brick::tower) {
    const Value seen = rec.attention({.q = patches,
                                      .k = patches,
                                      .v = patches,
                                      .layer = rec.kv_layer({heads, kHeadDim}),
                                      .heads = static_cast<int>(heads),
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
  std::vector<float> given(static_cast<size_t>(kRows * model.width));
  for (size_t i = 0; i < given.size(); ++i) given[i] = std::sin(static_cast<float>(i * i % 1009));
  std::vector<const float*> pointers;
  for (int64_t i = 0; i < kRows; ++i) pointers.push_back(given.data() + i * model.width);
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
                         {.dtype = DType::f16, .result = Model::Result::added},
                         {.product = Model::Product::of_norm},
                         {.width = kNarrow},
                         {.dtype = DType::f16, .width = kNarrow}};
  const Model exact[] = {{.brick = Model::Brick::projector},
                         {.product = Model::Product::of_patches},
                         {.brick = Model::Brick::projector, .dtype = DType::f16},
                         {.product = Model::Product::of_patches, .dtype = DType::f16},
                         {.product = Model::Product::of_norm, .width = kNarrow},
                         {.product = Model::Product::of_patches, .width = kNarrow},
                         {.width = kNarrow - kHeadDim}};
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
