// SPDX-License-Identifier: Apache-2.0
// Whole small programs on the CPU device against the reference interpreter on the same dequantised weights: every
// weight type, whole prompts, chunks, single steps, several sequences in one step; bad steps are refused.
#include "device/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "device/registry.h"
#include "kernels/cpu/select.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/difference.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kVocabulary = 70, kWidth = 256, kHidden = 512, kHeads = 6, kKvHeads = 2, kHeadDim = 32, kWindow = 37,
                  kExpertHidden = 96;

// Feed-forward of a row in SmallModel: one for all rows, or a mixture of experts with a shared one.
enum class FeedForward : uint8_t { dense, softmax_experts, sigmoid_experts };

// A two-layer decoder with everything: biases, normed heads, both pairings, a window, both activations, caps, scaled
// residuals, a tied head.
class SmallModel {
 public:
  explicit SmallModel(DType dtype, FeedForward kind = FeedForward::dense) : weights_(17) {
    const Weight table = matrix(dtype, kVocabulary, kWidth);
    const int ropes[] = {rec_.rope_table({RopePairs::halves, frequencies(16)}),
                         rec_.rope_table({RopePairs::adjacent, frequencies(12), 1.2F})};
    Value x = rec_.embed(table, 1.5F);
    for (int i = 0; i < 2; ++i) {
      const Value h = rec_.rms_norm(x, vector(kWidth), 1e-5F);
      Value q = rec_.matmul(h, matrix(dtype, kHeads * kHeadDim, kWidth), vector(kHeads * kHeadDim));
      Value k = rec_.matmul(h, matrix(dtype, kKvHeads * kHeadDim, kWidth));
      const Value v = rec_.matmul(h, matrix(dtype, kKvHeads * kHeadDim, kWidth));
      if (i == 1) q = rec_.rms_norm_heads(q, vector(kHeadDim), 1e-6F);
      const Value mixed = rec_.attention({.q = rec_.rope(q, ropes[i], kHeadDim),
                                          .k = rec_.rope(k, ropes[i], kHeadDim),
                                          .v = v,
                                          .layer = rec_.kv_layer({kKvHeads, kHeadDim}),
                                          .heads = kHeads,
                                          .window = i == 0 ? 0 : kWindow,
                                          .scale = 0.2F,
                                          .cap = i == 0 ? 0.0F : 1.5F});
      // The heads' width is no multiple of 256, so this one is never a K type.
      x = rec_.add(x, rec_.matmul(mixed, matrix(DType::q8_0, kWidth, kHeads * kHeadDim)));
      const Value g = rec_.rms_norm(x, vector(kWidth), 1e-5F);
      const Activation activation = i == 0 ? Activation::silu : Activation::gelu_tanh;
      if (kind != FeedForward::dense) x = rec_.add(x, mixture(dtype, kind, activation, g));
      const Value gated = rec_.gated(rec_.matmul(g, matrix(dtype, kHidden, kWidth)),
                                     rec_.matmul(g, matrix(dtype, kHidden, kWidth)), activation);
      const Value y = rec_.matmul(gated, matrix(dtype, kWidth, kHidden));
      x = rec_.add(x, kind == FeedForward::dense ? y : rec_.sigmoid_gate(y, g, vector(kWidth)), 0.7F);
    }
    const Value logits = rec_.matmul(rec_.rms_norm(rec_.select_outputs(x), vector(kWidth), 1e-5F), table);
    rec_.scale(logits, 0.8F, 3.0F);
    program = std::move(rec_).finish(logits);
    views = weights_.views();
    floats = weights_.floats();
  }

  Program program;
  std::vector<std::span<const std::byte>> views;
  std::vector<std::vector<float>> floats;

 private:
  // Six experts, of which a row uses two or three; the matrices of the last dimension are of another type.
  Value mixture(DType dtype, FeedForward kind, Activation activation, Value x) {
    constexpr int64_t kExperts = 6;
    const bool sigmoid = kind == FeedForward::sigmoid_experts;
    return rec_.experts(
        {.x = x,
         .logits = rec_.matmul(x, matrix(DType::f32, kExperts, kWidth)),
         .gate = matrix(dtype, kExperts * kExpertHidden, kWidth, {kExperts, kExpertHidden, kWidth}),
         .up = matrix(DType::f16, kExperts * kExpertHidden, kWidth, {kExperts, kExpertHidden, kWidth}),
         .down = matrix(DType::q8_0, kExperts * kWidth, kExpertHidden, {kExperts, kWidth, kExpertHidden}),
         .selection_bias = sigmoid ? vector(kExperts) : Weight(),
         .routing = {.used = sigmoid ? 3 : 2,
                     .score = sigmoid ? RouterScore::sigmoid : RouterScore::softmax,
                     .normalise = sigmoid,
                     .scale = sigmoid ? 1.5F : 1.0F},
         .activation = activation});
  }
  Weight matrix(DType dtype, int64_t rows, int64_t columns) {
    return weights_.matrix(rec_, dtype, rows, columns, 0.15F);
  }
  Weight matrix(DType dtype, int64_t rows, int64_t columns, const Shape& shape) {
    return weights_.matrix(rec_, dtype, rows, columns, 0.15F, shape);
  }
  Weight vector(int64_t n) { return weights_.vector(rec_, n, 1.0F); }
  static std::vector<float> frequencies(int pairs) {
    std::vector<float> f;
    for (int i = 0; i < pairs; ++i) f.push_back(std::pow(100.0F, -static_cast<float>(i) / static_cast<float>(pairs)));
    return f;
  }

  Recorder rec_;
  testing::ProgramWeights weights_;
};

std::vector<int32_t> tokens(int n, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 31 + seed * 7 + i * i) % kVocabulary);
  return ids;
}

using testing::relative_difference;

// Halves in the cache (2^-11 each) and 16-bit activations are the only approximations; over two layers they stay below
// one part in 200 of the logits' size, with experts, whose shares follow from approximate logits, below one in 100.
void expect_close(std::span<const float> actual, std::span<const float> expected,
                  FeedForward kind = FeedForward::dense) {
  EXPECT_LT(relative_difference(actual, expected), kind == FeedForward::dense ? 5e-3 : 1e-2);
}

class DeviceTest : public ::testing::TestWithParam<std::tuple<std::string, DType, FeedForward>> {
 protected:
  DeviceTest() : model_(std::get<1>(GetParam()), std::get<2>(GetParam())) {
    device_ = std::move(*open_device("cpu", {.threads = 2, .isa = std::get<0>(GetParam())}));
    executable_ = std::move(*device_->compile(
        model_.program,
        {.weights = model_.views, .max_tokens = 128, .max_outputs = 8, .precision = PromptPrecision::high}));
    cache_ = std::move(*device_->allocate(executable_->kv_block_bytes() * 16));
  }
  OutputRows run(std::span<const int32_t> ids, std::span<const SequenceRows> sequences,
                 std::span<const int32_t> outputs) {
    Result<OutputRows> out =
        executable_->run({.tokens = ids, .sequences = sequences, .outputs = outputs, .kv_cache = cache_.get()});
    EXPECT_TRUE(out) << out.error().message;
    return out.value_or(OutputRows{});
  }

  static void expect_close(std::span<const float> actual, std::span<const float> expected) {
    nanomind::expect_close(actual, expected, std::get<2>(GetParam()));
  }

  SmallModel model_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Buffer> cache_;
};

TEST_P(DeviceTest, WholePromptChunksAndStepsAgreeWithTheReference) {
  const std::vector<int32_t> ids = tokens(101, 1), blocks{5, 2};
  reference::Interpreter truth(model_.program, model_.floats);
  const std::vector<int32_t> wanted{0, 40, 63, 64, 100};
  const std::vector<float> expected = truth.run(ids, wanted);
  const SequenceRows whole{.blocks = blocks, .past = 0, .rows = 101};
  const OutputRows out = run(ids, {&whole, 1}, wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    expect_close(out.row(static_cast<int64_t>(i)), std::span(expected).subspan(i * kVocabulary, kVocabulary));
  }
  int64_t past = 0;
  for (const int64_t rows : {1, 7, 40, 16, 36, 1}) {
    const SequenceRows part{.blocks = blocks, .past = past, .rows = rows};
    const std::vector<int32_t> last{static_cast<int32_t>(rows - 1)};
    const OutputRows chunk =
        run(std::span(ids).subspan(static_cast<size_t>(past), static_cast<size_t>(rows)), {&part, 1}, last);
    past += rows;
    if (past == 101) expect_close(chunk.row(0), std::span(expected).last(kVocabulary));
  }
}

TEST_P(DeviceTest, GivenRowsStandWhereTokensWould) {
  std::vector<int32_t> ids = tokens(40, 6);
  const std::vector<int32_t> blocks{3}, wanted{9, 39};
  std::vector<float> rows(3 * kWidth);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i));
  std::vector<const float*> given;
  for (const size_t at : {2, 3, 20}) {
    ids[at] = -1 - static_cast<int32_t>(at);
    given.push_back(rows.data() + given.size() * kWidth);
  }
  const std::vector<float> expected =
      reference::Interpreter(model_.program, model_.floats).run(ids, wanted, {.given = rows});
  const SequenceRows whole{.blocks = blocks, .past = 0, .rows = 40};
  const auto out = executable_->run(
      {.tokens = ids, .given = given, .sequences = {&whole, 1}, .outputs = wanted, .kv_cache = cache_.get()});
  ASSERT_TRUE(out) << out.error().message;
  for (size_t i = 0; i < wanted.size(); ++i)
    expect_close(out->row(static_cast<int64_t>(i)), std::span(expected).subspan(i * kVocabulary, kVocabulary));
  EXPECT_FALSE(executable_->run({.tokens = ids,
                                 .given = std::span(given).first(2),
                                 .sequences = {&whole, 1},
                                 .outputs = wanted,
                                 .kv_cache = cache_.get()}));
}

TEST_P(DeviceTest, SequencesOfOneStepDoNotSeeEachOther) {
  const std::vector<int32_t> a = tokens(70, 2), b = tokens(9, 3), blocks_a{7, 1}, blocks_b{0};
  std::vector<int32_t> both = a;
  both.insert(both.end(), b.begin(), b.end());
  const SequenceRows parts[] = {{.blocks = blocks_a, .past = 0, .rows = 70},
                                {.blocks = blocks_b, .past = 0, .rows = 9}};
  const std::vector<int32_t> wanted{69, 78};
  const OutputRows out = run(both, parts, wanted);
  const std::vector<int32_t> last_a{69}, last_b{8};
  expect_close(out.row(0), reference::Interpreter(model_.program, model_.floats).run(a, last_a));
  expect_close(out.row(1), reference::Interpreter(model_.program, model_.floats).run(b, last_b));
}

std::vector<std::tuple<std::string, DType, FeedForward>> cases() {
  std::vector<std::tuple<std::string, DType, FeedForward>> all;
  for (const std::string& isa : runnable_isas()) {
    for (const DType t : kDTypes) {
      all.emplace_back(isa, t, FeedForward::dense);
    }
    for (DType t : {DType::f32, DType::q4_k}) {
      all.emplace_back(isa, t, FeedForward::softmax_experts);
      all.emplace_back(isa, t, FeedForward::sigmoid_experts);
    }
  }
  return all;
}
std::string case_name(const ::testing::TestParamInfo<DeviceTest::ParamType>& test) {
  const auto& [isa, dtype, kind] = test.param;
  const std::string name = isa + "_" + std::string(traits(dtype).name);
  if (kind == FeedForward::dense) return name;
  return name + (kind == FeedForward::softmax_experts ? "_softmax_experts" : "_sigmoid_experts");
}
INSTANTIATE_TEST_SUITE_P(Types, DeviceTest, ::testing::ValuesIn(cases()), case_name);

// A norm that is wide enough for 8 bits, and a product of it.
TEST(Device, FastPromptsLoseLittleAndOnlyInStepsOfManyTokens) {
  constexpr int64_t kWide = 1024, kOut = 96;
  testing::RandomWeights random(23);
  const auto table = random.gguf(DType::q8_0, kVocabulary, kWide, 1.0F),
             matrix = random.gguf(DType::q5_0, kOut, kWide, 0.1F);
  const std::vector<float> gain = random.floats(kWide, 1.0F);
  Recorder rec;
  const Value x = rec.embed(rec.weight({"table", DType::q8_0, {kVocabulary, kWide}}));
  const Value h = rec.rms_norm(x, rec.weight({"gain", DType::f32, {kWide}}), 1e-6F);
  const Value y = rec.matmul(h, rec.weight({"matrix", DType::q5_0, {kOut, kWide}}));
  const Value logits = rec.select_outputs(y);
  const Program program = std::move(rec).finish(logits);
  const auto packed_table = testing::pack(DType::q8_0, table, kVocabulary, kWide);
  const auto packed_matrix = testing::pack(DType::q5_0, matrix, kOut, kWide);
  const std::vector<std::span<const std::byte>> views{
      {packed_table.data()->bytes, packed_bytes(DType::q8_0, kVocabulary, kWide)},
      std::as_bytes(std::span(gain)),
      {packed_matrix.data()->bytes, packed_bytes(DType::q5_0, kOut, kWide)}};
  const std::vector<std::vector<float>> floats{testing::dequantize(DType::q8_0, table, kVocabulary, kWide), gain,
                                               testing::dequantize(DType::q5_0, matrix, kOut, kWide)};
  for (const std::string& isa : runnable_isas()) {
    const auto device = std::move(*open_device("cpu", {.threads = 2, .isa = isa}));
    const auto error = [&](PromptPrecision precision, int n) {
      const auto executable = std::move(
          *device->compile(program, {.weights = views, .max_tokens = 64, .max_outputs = 1, .precision = precision}));
      const auto cache = std::move(*device->allocate(64));
      const std::vector<int32_t> ids = tokens(n, 4), last{n - 1}, block{0};
      const SequenceRows rows{.blocks = block, .past = 0, .rows = n};
      const auto out =
          executable->run({.tokens = ids, .sequences = {&rows, 1}, .outputs = last, .kv_cache = cache.get()});
      const std::vector<float> expected = reference::Interpreter(program, floats).run(ids, last);
      return relative_difference(out->row(0), expected);
    };
    // Many rows go by GemmKernels::gemm on x86, whose activations have a scale for 128 columns instead of 32.
    const bool by_gemm = isa == "avx2" || isa == "avx512" || isa == "amx";
    EXPECT_LT(error(PromptPrecision::high, 64), by_gemm ? 2e-4 : 1e-4) << isa;
    EXPECT_LT(error(PromptPrecision::fast, 8), 1e-4) << isa;
    // Uniform codes of 8 bits: 1 / (127 sqrt(12)) of each unit's largest, about three times its root mean square.
    EXPECT_LT(error(PromptPrecision::fast, 64), 1.5e-2) << isa;
    if (isa == "avx512") {
      EXPECT_GT(error(PromptPrecision::fast, 64), 1e-3) << "the fast path is not taken";
    }
  }
}

// Neither cache nor products of F32 weights are rounded then: what is left are the products of Q8_0, whose activations
// have 16 bits.
TEST(Device, FloatCachesLeaveTheErrorsOfProducts) {
  const SmallModel model(DType::f32);
  const std::vector<int32_t> ids = tokens(101, 1), last{100}, zero{0}, blocks{5, 2};
  const std::vector<float> expected = reference::Interpreter(model.program, model.floats).run(ids, last);
  for (const std::string& isa : runnable_isas()) {
    const auto device = std::move(*open_device("cpu", {.threads = 2, .isa = isa}));
    const auto error = [&](KvType type) {
      const auto executable = std::move(*device->compile(model.program, {.weights = model.views,
                                                                         .max_tokens = 100,
                                                                         .max_outputs = 1,
                                                                         .precision = PromptPrecision::high,
                                                                         .kv_type = type}));
      const auto cache = std::move(*device->allocate(executable->kv_block_bytes() * 6));
      const auto feed = [&](int64_t past, int64_t rows) {
        const SequenceRows part{.blocks = blocks, .past = past, .rows = rows};
        return executable->run({.tokens = std::span(ids).subspan(static_cast<size_t>(past), static_cast<size_t>(rows)),
                                .sequences = {&part, 1},
                                .outputs = zero,
                                .kv_cache = cache.get()});
      };
      EXPECT_TRUE(feed(0, 100));
      return relative_difference(feed(100, 1)->row(0), expected);
    };
    const double full = error(KvType::f32);
    EXPECT_LT(full, 1e-4) << isa;
    EXPECT_GT(error(KvType::f16), 2 * full) << isa;
  }
}

// With one thread the keys of a step are gathered in one go, with several in parts that are merged.
TEST(Device, LongCachesAreReadInParts) {
  const SmallModel model(DType::q8_0);
  const std::vector<int32_t> ids = tokens(401, 3), last{400}, zero{0};
  const std::vector<float> expected = reference::Interpreter(model.program, model.floats).run(ids, last);
  std::vector<int32_t> blocks(7);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(6 - i);
  for (const int threads : {1, 3}) {
    const auto device = std::move(*open_device("cpu", {.threads = threads, .isa = ""}));
    const auto executable = std::move(*device->compile(
        model.program,
        {.weights = model.views, .max_tokens = 100, .max_outputs = 1, .precision = PromptPrecision::high}));
    const auto cache = std::move(*device->allocate(executable->kv_block_bytes() * blocks.size()));
    for (int64_t past = 0; past <= 400; past += 100) {
      const int64_t rows = std::min<int64_t>(100, 401 - past);
      const SequenceRows part{.blocks = blocks, .past = past, .rows = rows};
      const auto out =
          executable->run({.tokens = std::span(ids).subspan(static_cast<size_t>(past), static_cast<size_t>(rows)),
                           .sequences = {&part, 1},
                           .outputs = zero,
                           .kv_cache = cache.get()});
      ASSERT_TRUE(out) << out.error().message;
      if (past == 400) expect_close(out->row(0), expected);
    }
  }
}

TEST(Device, RefusesBadSteps) {
  const SmallModel model(DType::q4_0);
  const auto device = std::move(*open_device("cpu", {.threads = 1, .isa = ""}));
  const auto executable =
      std::move(*device->compile(model.program, {.weights = model.views, .max_tokens = 4, .max_outputs = 1}));
  const auto cache = std::move(*device->allocate(executable->kv_block_bytes()));
  const std::vector<int32_t> block{0}, no_block{1}, good{1, 2}, outside{1, kVocabulary}, row{1}, no_row{2},
      two_rows{0, 1};
  const SequenceRows fine{.blocks = block, .past = 0, .rows = 2}, beyond{.blocks = block, .past = 63, .rows = 2},
      elsewhere{.blocks = no_block, .past = 0, .rows = 2}, fewer{.blocks = block, .past = 0, .rows = 1};
  const auto code = [&](std::span<const int32_t> ids, const SequenceRows& s, std::span<const int32_t> outputs) {
    const auto result =
        executable->run({.tokens = ids, .sequences = {&s, 1}, .outputs = outputs, .kv_cache = cache.get()});
    return result ? "ok" : result.error().code == ErrorCode::invalid_argument ? "invalid" : "other";
  };
  EXPECT_STREQ(code(outside, fine, row), "invalid");
  EXPECT_STREQ(code(good, beyond, row), "invalid");
  EXPECT_STREQ(code(good, elsewhere, row), "invalid");
  EXPECT_STREQ(code(good, fewer, row), "invalid");
  EXPECT_STREQ(code(good, fine, no_row), "invalid");
  EXPECT_STREQ(code(good, fine, two_rows), "invalid");
  EXPECT_STREQ(code({}, fine, row), "invalid");
  EXPECT_STREQ(code(good, fine, row), "ok");
}

TEST(Device, RefusesWeightsOfTheWrongSize) {
  SmallModel model(DType::q4_0);
  const auto device = std::move(*open_device("cpu", {.threads = 1, .isa = ""}));
  model.views[0] = model.views[0].first(64);
  const auto compiled = device->compile(model.program, {.weights = model.views, .max_tokens = 4, .max_outputs = 1});
  ASSERT_FALSE(compiled);
  EXPECT_EQ(compiled.error().code, ErrorCode::corrupt);
}

TEST(Device, UnknownNamesListTheKnownOnes) {
  const auto device = open_device("gpu9", {});
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("sim:cpu"), std::string::npos);
  const auto isa = open_device("cpu", {.threads = 1, .isa = "mmx"});
  ASSERT_FALSE(isa);
  EXPECT_NE(isa.error().message.find("scalar"), std::string::npos);
}

}  // namespace
}  // namespace nanomind
