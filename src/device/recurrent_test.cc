// SPDX-License-Identifier: Apache-2.0
// Operations with a state of the sequence on the CPU device, on every ISA, against the reference interpreter: whole,
// in chunks, token by token, two sequences in one step, and continued from a copied state.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "device/device.h"
#include "device/registry.h"
#include "kernels/cpu/select.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kVocabulary = 50;
constexpr int kKeyHeads = 2, kValueHeads = 4, kKeyDim = 8, kValueDim = 24, kTaps = 4;
constexpr int64_t kColumns = 2 * kKeyHeads * kKeyDim + kValueHeads * kValueDim, kOut = kValueHeads * kValueDim;

// Tokens pick rows of a table; a convolution, the delta rule and a gate over split heads follow.
struct RecurrentModel {
  Program program;
  std::vector<std::vector<float>> floats;
  std::vector<std::span<const std::byte>> views;

  RecurrentModel() {
    Recorder rec;
    const Value x = rec.embed(matrix(rec, kVocabulary, kColumns));
    const Value mixed = rec.short_conv(x, vector(rec, kColumns * kTaps, 0.5F), kTaps, Activation::silu);
    const Value plain = rec.short_conv(x, vector(rec, kColumns * 3, 0.5F), 3, Activation::identity);
    const Value alpha = rec.matmul(plain, matrix(rec, kValueHeads, kColumns));
    const Value beta = rec.matmul(plain, matrix(rec, kValueHeads, kColumns));
    const Value remembered = rec.delta_rule({.x = mixed,
                                             .alpha = alpha,
                                             .beta = beta,
                                             .decay = vector(rec, kValueHeads, -0.5F),
                                             .bias = vector(rec, kValueHeads, 1.0F),
                                             .key_heads = kKeyHeads,
                                             .value_heads = kValueHeads,
                                             .key_dim = kKeyDim,
                                             .value_dim = kValueDim,
                                             .eps = 1e-6F});
    const auto [gate, up] = rec.split_heads(rec.matmul(remembered, matrix(rec, 2 * kOut, kOut)), kValueDim);
    const Value gated = rec.gated(gate, rec.gated(up, remembered, Activation::identity), Activation::sigmoid);
    const Value out = rec.select_outputs(gated);
    program = std::move(rec).finish(out);
    views = weights_.views();
    floats = weights_.floats();
  }

 private:
  Weight matrix(Recorder& rec, int64_t rows, int64_t columns) {
    return weights_.matrix(rec, DType::f32, rows, columns, 0.3F);
  }
  // Below 0 all of them where `size` is.
  Weight vector(Recorder& rec, int64_t n, float size) {
    std::vector<float> numbers = weights_.numbers(n, std::abs(size));
    for (float& f : numbers) f = size < 0 ? -std::abs(f) : f;
    return weights_.vector(rec, std::move(numbers));
  }

  testing::ProgramWeights weights_{5};
};

std::vector<int32_t> tokens(int n, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 13 + seed * 5 + i * i) % kVocabulary);
  return ids;
}

class RecurrentTest : public ::testing::TestWithParam<std::string> {
 protected:
  RecurrentTest() {
    device_ = std::move(*open_device("cpu", {.threads = 2, .isa = GetParam()}));
    executable_ =
        std::move(*device_->compile(model_.program, {.weights = model_.views, .max_tokens = 64, .max_outputs = 64}));
    cache_ = std::move(*device_->allocate(64));
    states_ = std::move(*device_->allocate(3 * executable_->state_bytes()));
  }

  // Expects what the reference gives for `ids` after what it has seen.
  void expect(reference::Interpreter& truth, std::span<const int32_t> ids, const OutputRows& out, int64_t first) {
    std::vector<int32_t> all(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) all[i] = static_cast<int32_t>(i);
    const std::vector<float> expected = truth.run(ids, all);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / kOut;
      ASSERT_NEAR(out.row(first + row)[i % kOut], expected[i], 2e-5) << "row " << row << ", column " << i % kOut;
    }
  }

  OutputRows run(std::span<const int32_t> ids, std::span<const SequenceRows> sequences) {
    std::vector<int32_t> all(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) all[i] = static_cast<int32_t>(i);
    Result<OutputRows> out = executable_->run(
        {.tokens = ids, .sequences = sequences, .outputs = all, .kv_cache = cache_.get(), .states = states_.get()});
    EXPECT_TRUE(out) << out.error().message;
    return out.value_or(OutputRows{});
  }

  RecurrentModel model_;
  std::vector<int32_t> blocks_{0, 0};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Buffer> cache_, states_;
};

TEST_P(RecurrentTest, WholeChunksAndStepsAgreeWithTheReference) {
  const std::vector<int32_t> ids = tokens(60, 1);
  std::memset(states_->bytes().data(), 0x7F, states_->bytes().size());  // what another sequence left must not show
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{60}, {1, 1, 2, 30, 26}, {59, 1}}) {
    reference::Interpreter truth(model_.program, model_.floats);
    int64_t past = 0;
    for (const int64_t rows : cuts) {
      const SequenceRows part{.blocks = blocks_, .past = past, .rows = rows, .state = 1};
      const auto piece = std::span(ids).subspan(static_cast<size_t>(past), static_cast<size_t>(rows));
      ASSERT_NO_FATAL_FAILURE(expect(truth, piece, run(piece, {&part, 1}), 0));
      past += rows;
    }
  }
}

TEST_P(RecurrentTest, SequencesOfOneStepKeepTheirOwnStates) {
  reference::Interpreter a(model_.program, model_.floats), b(model_.program, model_.floats);
  int64_t past = 0;
  for (const int rows : {5, 1, 7}) {
    const std::vector<int32_t> first = tokens(rows, 2), second = tokens(2 * rows, 3);
    std::vector<int32_t> both = first;
    both.insert(both.end(), second.begin(), second.end());
    const SequenceRows parts[] = {{.blocks = blocks_, .past = past, .rows = rows, .state = 2},
                                  {.blocks = blocks_, .past = 2 * past, .rows = 2 * rows, .state = 0}};
    const OutputRows out = run(both, parts);
    ASSERT_NO_FATAL_FAILURE(expect(a, first, out, 0));
    ASSERT_NO_FATAL_FAILURE(expect(b, second, out, rows));
    past += rows;
  }
}

TEST_P(RecurrentTest, ACopiedStateContinuesWhereItWasTaken) {
  const std::vector<int32_t> ids = tokens(20, 4), other = tokens(9, 5);
  const SequenceRows whole{.blocks = blocks_, .past = 0, .rows = 20, .state = 0};
  run(ids, {&whole, 1});
  const size_t size = executable_->state_bytes();
  std::memcpy(states_->bytes().data() + size, states_->bytes().data(), size);
  const SequenceRows onwards{.blocks = blocks_, .past = 20, .rows = 9, .state = 0};
  run(other, {&onwards, 1});
  const SequenceRows again{.blocks = blocks_, .past = 20, .rows = 9, .state = 1};
  reference::Interpreter truth(model_.program, model_.floats);
  truth.run(ids, std::vector<int32_t>{0});
  expect(truth, other, run(other, {&again, 1}), 0);
}

TEST_P(RecurrentTest, AMissingStateIsRefused) {
  const std::vector<int32_t> ids = tokens(2, 1);
  const SequenceRows outside{.blocks = blocks_, .past = 0, .rows = 2, .state = 3};
  EXPECT_FALSE(executable_->run(
      {.tokens = ids, .sequences = {&outside, 1}, .outputs = {}, .kv_cache = cache_.get(), .states = states_.get()}));
  const SequenceRows inside{.blocks = blocks_, .past = 0, .rows = 2};
  EXPECT_FALSE(executable_->run({.tokens = ids, .sequences = {&inside, 1}, .outputs = {}, .kv_cache = cache_.get()}));
}

INSTANTIATE_TEST_SUITE_P(Isas, RecurrentTest, ::testing::ValuesIn(runnable_isas()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace nanomind
