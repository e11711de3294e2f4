// SPDX-License-Identifier: Apache-2.0
// Feed-forward layers and mixtures of experts gated by each activation, on every instruction set, against the
// interpreter.
#include <gtest/gtest.h>

#include "device/registry.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/difference.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kVocabulary = 40, kWidth = 64, kHidden = 96, kExperts = 3;
constexpr Activation kActivations[] = {Activation::silu,       Activation::gelu_tanh, Activation::gelu,
                                       Activation::gelu_quick, Activation::sigmoid,   Activation::relu_squared,
                                       Activation::tanh,       Activation::identity};

enum class Kind : uint8_t { dense, experts };

Program record(Activation activation, Kind kind, testing::ProgramWeights& weights) {
  Recorder rec;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return weights.matrix(rec, DType::f32, rows, columns, 0.3F);
  };
  const auto expert_matrix = [&](int64_t rows, int64_t columns) {
    return weights.matrix(rec, DType::f32, kExperts * rows, columns, 0.3F, {kExperts, rows, columns});
  };
  Value x = rec.embed(matrix(kVocabulary, kWidth), 4.0F);
  if (kind == Kind::dense) {
    const Value gate = rec.matmul(x, matrix(kHidden, kWidth)), up = rec.matmul(x, matrix(kHidden, kWidth));
    x = rec.matmul(rec.gated(gate, up, activation), matrix(kWidth, kHidden));
  } else {
    const Value logits = rec.matmul(x, matrix(kExperts, kWidth));
    x = rec.experts({.x = x,
                     .logits = logits,
                     .gate = expert_matrix(kHidden, kWidth),
                     .up = expert_matrix(kHidden, kWidth),
                     .down = expert_matrix(kWidth, kHidden),
                     .routing = {.used = 2},
                     .activation = activation});
  }
  x = rec.matmul(rec.select_outputs(x), matrix(kWidth, kWidth));
  return std::move(rec).finish(x);
}

// Single rows and several; products of floats are rounded by their order only.
TEST(Gates, AreThoseOfTheReferenceForEveryActivation) {
  for (const Activation activation : kActivations) {
    for (const Kind kind : {Kind::dense, Kind::experts}) {
      testing::ProgramWeights weights(11);
      const Program program = record(activation, kind, weights);
      const auto views = weights.views();
      for (const std::string& isa : device_isas()) {
        SCOPED_TRACE(isa + " activation " + std::to_string(static_cast<int>(activation)) +
                     (kind == Kind::dense ? "" : " of experts"));
        const auto device = std::move(*open_device("cpu", {.threads = 2, .isa = isa}));
        const auto executable = std::move(*device->compile(
            program, {.weights = views, .max_tokens = 20, .max_outputs = 1, .precision = PromptPrecision::high}));
        const auto cache = std::move(*device->allocate(64));
        for (const int32_t rows : {1, 20}) {
          std::vector<int32_t> ids;
          for (int32_t i = 0; i < rows; ++i) ids.push_back((i * 7 + 3) % kVocabulary);
          const std::vector<int32_t> last{rows - 1}, block{0};
          const SequenceRows sequence{.blocks = block, .past = 0, .rows = rows};
          const auto out =
              executable->run({.tokens = ids, .sequences = {&sequence, 1}, .outputs = last, .kv_cache = cache.get()});
          ASSERT_TRUE(out) << out.error().message;
          const auto expected = reference::Interpreter(program, weights.floats()).run(ids, last);
          EXPECT_LT(testing::relative_difference(out->row(0), expected), 1e-3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace nanomind
