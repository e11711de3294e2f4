// SPDX-License-Identifier: Apache-2.0
// Operations of models with several residual streams, and attention on another layer's keys, on the CPU device, on
// every ISA, against the reference interpreter: whole, in chunks, and two sequences in one step.
#include <gtest/gtest.h>

#include <cmath>

#include "device/device.h"
#include "device/registry.h"
#include "kernels/cpu/select.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kVocabulary = 50, kWidth = 72, kStreams = 3;  // not a multiple of 16, 32 or 64
constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16;

// Two streams mixed by factors of each row, attention twice on the same keys, and thresholds.
struct StreamsModel {
  Program program;
  std::vector<std::vector<float>> floats;
  std::vector<std::span<const std::byte>> views;

  StreamsModel() {
    Recorder rec;
    const Value both = rec.embed(matrix(rec, kVocabulary, 2 * kWidth));
    const Value x = rec.columns(both, 0, kWidth), y = rec.columns(both, kWidth, kWidth);
    const Value factors = rec.matmul(x, matrix(rec, kStreams * kStreams, kWidth));
    const Value z = rec.match_magnitude(rec.matmul(y, matrix(rec, kWidth, kWidth)), x, 1e-5F);
    const Value streams[] = {x, y, z};
    const Value mixed = rec.weighted_sum(y, streams, factors, kStreams);
    const Value scaled = rec.scale_columns(mixed, vector(rec, kWidth));

    const int cache = rec.kv_layer({kKvHeads, kHeadDim});
    const auto heads = [&](Value from, int64_t count) {
      return rec.rms_norm_heads(rec.matmul(from, matrix(rec, count * kHeadDim, kWidth)), kHeadDim, 1e-6F);
    };
    Recorder::AttentionArgs args{.q = heads(scaled, kHeads),
                                 .k = heads(scaled, kKvHeads),
                                 .v = heads(scaled, kKvHeads),
                                 .layer = cache,
                                 .heads = kHeads,
                                 .scale = 0.25F};
    const Value first = rec.matmul(rec.attention(args), matrix(rec, kWidth, kHeads * kHeadDim));
    args.q = heads(first, kHeads);
    args.k = args.v = {};
    args.window = 5;
    const Value second = rec.matmul(rec.attention(args), matrix(rec, kWidth, kHeads * kHeadDim));
    const Value kept = rec.above_deviation(rec.add(first, second), 0.5F);
    const Value out = rec.select_outputs(kept);
    program = std::move(rec).finish(out);
    views = weights_.views();
    floats = weights_.floats();
  }

 private:
  Weight matrix(Recorder& rec, int64_t rows, int64_t columns) {
    return weights_.matrix(rec, DType::f32, rows, columns, 0.3F);
  }
  Weight vector(Recorder& rec, int64_t n) { return weights_.vector(rec, n, 1.0F); }

  testing::ProgramWeights weights_{7};
};

std::vector<int32_t> tokens(int n, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 17 + seed * 3 + i * i) % kVocabulary);
  return ids;
}

class StreamsTest : public ::testing::TestWithParam<std::string> {
 protected:
  StreamsTest() {
    device_ = std::move(*open_device("cpu", {.threads = 2, .isa = GetParam()}));
    executable_ =
        std::move(*device_->compile(model_.program, {.weights = model_.views, .max_tokens = 64, .max_outputs = 64}));
    cache_ = std::move(*device_->allocate(4 * executable_->kv_block_bytes()));
  }

  OutputRows run(std::span<const int32_t> ids, std::span<const SequenceRows> sequences) {
    std::vector<int32_t> all(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) all[i] = static_cast<int32_t>(i);
    Result<OutputRows> out =
        executable_->run({.tokens = ids, .sequences = sequences, .outputs = all, .kv_cache = cache_.get()});
    EXPECT_TRUE(out) << out.error().message;
    return out.value_or(OutputRows{});
  }

  // Expects what the reference gives for `ids` after what it has seen. Keys and values are halves here.
  void expect(reference::Interpreter& truth, std::span<const int32_t> ids, const OutputRows& out, int64_t first) {
    std::vector<int32_t> all(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) all[i] = static_cast<int32_t>(i);
    const std::vector<float> expected = truth.run(ids, all);
    int above = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / kWidth;
      above += expected[i] > 0 ? 1 : 0;
      ASSERT_NEAR(out.row(first + row)[i % kWidth], expected[i], 4e-3) << "row " << row << ", column " << i % kWidth;
    }
    EXPECT_GT(above, 0);
  }

  StreamsModel model_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Buffer> cache_;
};

TEST_P(StreamsTest, WholeAndChunksAgreeWithTheReference) {
  const std::vector<int32_t> ids = tokens(100, 1), blocks{1, 3};
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{60, 40}, {1, 1, 2, 63, 33}}) {
    reference::Interpreter truth(model_.program, model_.floats);
    int64_t past = 0;
    for (const int64_t rows : cuts) {
      const SequenceRows part{.blocks = blocks, .past = past, .rows = rows};
      const auto piece = std::span(ids).subspan(static_cast<size_t>(past), static_cast<size_t>(rows));
      ASSERT_NO_FATAL_FAILURE(expect(truth, piece, run(piece, {&part, 1}), 0));
      past += rows;
    }
  }
}

TEST_P(StreamsTest, SequencesOfOneStepReadTheirOwnKeys) {
  reference::Interpreter a(model_.program, model_.floats), b(model_.program, model_.floats);
  const std::vector<int32_t> first_blocks{2}, second_blocks{0, 1};
  int64_t past = 0;
  for (const int rows : {5, 1, 17}) {
    const std::vector<int32_t> first = tokens(rows, 2), second = tokens(2 * rows, 3);
    std::vector<int32_t> both = first;
    both.insert(both.end(), second.begin(), second.end());
    const SequenceRows parts[] = {{.blocks = first_blocks, .past = past, .rows = rows},
                                  {.blocks = second_blocks, .past = 2 * past, .rows = 2 * rows}};
    const OutputRows out = run(both, parts);
    ASSERT_NO_FATAL_FAILURE(expect(a, first, out, 0));
    ASSERT_NO_FATAL_FAILURE(expect(b, second, out, rows));
    past += rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, StreamsTest, ::testing::ValuesIn(runnable_isas()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace nanomind
