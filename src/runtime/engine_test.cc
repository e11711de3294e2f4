// SPDX-License-Identifier: Apache-2.0
// The engine on tiny random models: logits against transformers' float reference (tests/golden/tiny-*.json), and
// everything that must not change them: chunks, prefix reuse, other sessions; limits, cancellation, and a decode loop
// that allocates nothing.
#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "runtime/sampler.h"
#include "runtime/test_engine.h"
#include "tests/support/difference.h"
#include "text/utf8.h"

namespace {
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): operator new has no other place
std::atomic<int64_t> allocations{0};
}  // namespace

// None of these may be inlined: GCC would see malloc() beside delete, or free() beside new, and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
// Sanitizers bring one of their own, whose memory the operators below could not free.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace nanomind {
namespace {

// 16-bit activations and halves in the cache against float32: these models of random weights move by less than this
// many logits, where int8 activations move them by 0.3 to 0.6 (tolerance_int8_activations of the golden files).
constexpr float kTolerance = 0.02F;

class EngineTest : public testing::TinyEngineTest {};

void expect_near(std::span<const float> actual, std::span<const float> expected, float tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << "at " << i;
}

TEST_P(EngineTest, LogitsAreTheReferences) {
  const auto session = open();
  const auto last = golden_["last_logits"].get<std::vector<float>>();
  ASSERT_TRUE(session->feed(ids_, nullptr));
  ASSERT_EQ(session->logits().size(), last.size());
  expect_near(session->logits(), last, kTolerance);
  const auto first = golden_["first_logits"].get<std::vector<std::vector<float>>>();
  ASSERT_TRUE(session->score(ids_, 0, [&](int64_t position, std::span<const float> logits) {
    expect_near(logits, first[static_cast<size_t>(position)], kTolerance);
  }));
}

// Bounds are relative. Numbers in q8_0 are off by 0.0065 of their size, in q4_0 by 0.08 (see device/kv_cache_test.cc);
// residuals and means over keys make that less, layers make it more.
TEST_P(EngineTest, CacheTypesTradeMemoryForAccuracy) {
  const auto last = golden_["last_logits"].get<std::vector<float>>();
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  for (const auto& [type, tolerance] :
       {std::pair{KvType::f32, 0.001}, {KvType::f16, 0.003}, {KvType::q8_0, 0.02}, {KvType::q4_0, 0.25}}) {
    const auto engine = load({.kv_type = type});
    EXPECT_EQ(engine->info().kv_type, kv_type_name(type));
    EXPECT_LT(engine->info().kv_bytes, bytes);
    bytes = engine->info().kv_bytes;
    const auto session = std::move(*engine->open_session());
    ASSERT_TRUE(session->feed(ids_, nullptr));
    EXPECT_LT(testing::relative_difference(session->logits(), last), tolerance) << kv_type_name(type);
  }
}

TEST_P(EngineTest, Qual04EveryInstructionSetGivesTheReferences) {
  const auto last = golden_["last_logits"].get<std::vector<float>>();
  int runnable = 0;
  for (const char* isa : {"scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"}) {
    EngineOptions options{.model = "tests/data/tiny-" + GetParam() + ".gguf", .packed_folder = folder_, .isa = isa};
    options.threads = 2;
    options.context = 128;
    const auto engine = Engine::load(options);
    if (!engine) {
      EXPECT_EQ(engine.error().code, ErrorCode::unsupported) << engine.error().message;
      continue;
    }
    ++runnable;
    const auto session = std::move(*(*engine)->open_session());
    ASSERT_TRUE(session->feed(ids_, nullptr));
    SCOPED_TRACE(isa);
    expect_near(session->logits(), last, kTolerance);
  }
  EXPECT_GE(runnable, 1);
}

TEST_P(EngineTest, StepsAndPrefixReuseGiveTheSameLogits) {
  const auto whole = open(), steps = open();
  ASSERT_TRUE(whole->feed(ids_, nullptr));
  const std::vector<float> expected(whole->logits().begin(), whole->logits().end());
  for (size_t n = 1; n <= ids_.size(); ++n) ASSERT_TRUE(steps->feed(std::span(ids_).first(n), nullptr));
  // Prompts and single tokens round activations differently, both far below kTolerance.
  expect_near(steps->logits(), expected, kTolerance / 2);
  // Another continuation and back: what is cached of it must not show.
  std::vector<TokenId> other(ids_.begin(), ids_.begin() + 9);
  other.insert(other.end(), 30, 1);
  ASSERT_TRUE(steps->feed(other, nullptr));
  ASSERT_TRUE(steps->feed(ids_, nullptr));
  expect_near(steps->logits(), expected, kTolerance / 2);
}

TEST_P(EngineTest, Qual04TheSimulatedDeviceGivesTheSame) {
  const auto simulated = load({.device = "sim:cpu"});
  const auto session = std::move(*simulated->open_session()), mine = open();
  ASSERT_TRUE(session->feed(ids_, nullptr));
  ASSERT_TRUE(mine->feed(ids_, nullptr));
  expect_near(session->logits(), mine->logits(), 0.0F);
}

TEST_P(EngineTest, AFullContextIsAClearStop) {
  engine_ = load({.context = 32});
  const auto session = open();
  const std::vector<TokenId> long_prompt(33, 1);
  const Result<void> fed = session->feed(long_prompt, nullptr);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().code, ErrorCode::context_full);
  EXPECT_TRUE(session->tokens().empty());
  const auto answer = session->generate(
      std::span(ids_).first(10), {.sampler = {.temperature = 0}, .end_tokens = GenerateOptions::EndTokens::ignore});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reason, FinishReason::context_full);
  EXPECT_EQ(session->tokens().size(), 32U);
  EXPECT_EQ(answer->tokens.size(), 23U);  // the last one was sampled from a full context
}

TEST_P(EngineTest, GenerationStopsWhereAsked) {
  const auto session = open();
  GenerateOptions options{
      .sampler = {.temperature = 0}, .max_tokens = 5, .end_tokens = GenerateOptions::EndTokens::ignore};
  const auto answer = session->generate(ids_, options);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reason, FinishReason::length);
  EXPECT_EQ(answer->tokens.size(), 5U);
  EXPECT_EQ(answer->prompt_tokens, static_cast<int64_t>(ids_.size()));
  // The same again comes from the cache and is the same.
  const auto again = session->generate(ids_, options);
  EXPECT_EQ(again->tokens, answer->tokens);
  EXPECT_EQ(again->prompt_tokens, 1);
  options.max_tokens = 0;
  EXPECT_TRUE(session->generate(ids_, options)->tokens.empty());
}

TEST_P(EngineTest, CancellationStopsWithinAToken) {
  const auto session = open();
  std::atomic<bool> cancel{false};
  GenerateOptions options{
      .sampler = {.temperature = 0}, .end_tokens = GenerateOptions::EndTokens::ignore, .cancel = &cancel};
  int pieces = 0;
  options.on_text = [&](std::string_view) { cancel = ++pieces == 3; };
  const auto answer = session->generate(ids_, options);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reason, FinishReason::cancelled);
  EXPECT_LE(answer->tokens.size(), 16U);  // a piece may be several tokens of one character
  options.on_text = {};
  cancel = true;
  EXPECT_EQ(session->generate(std::vector<TokenId>(40, 2), options)->reason, FinishReason::cancelled);
  cancel = false;
  options.max_tokens = 1;
  EXPECT_TRUE(session->generate(ids_, options));
}

TEST_P(EngineTest, SessionsShareTheCacheAndGiveItBack) {
  engine_ = load({.context = 64});
  auto one = open();
  ASSERT_TRUE(one->feed(std::vector<TokenId>(60, 1), nullptr));
  const auto two = open();
  const Result<void> refused = two->feed(ids_, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  one.reset();
  EXPECT_TRUE(two->feed(ids_, nullptr));
}

TEST_P(EngineTest, SteadyDecodeAllocatesNothing) {
  const auto session = open();
  std::vector<TokenId> ids = ids_;
  ids.reserve(200);
  for (int i = 0; i < 10; ++i) {
    ids.push_back(3);
    ASSERT_TRUE(session->feed(ids, nullptr));
  }
  SamplerOptions options{.typical_p = 0.9, .repetition_penalty = 1.1, .presence_penalty = 0.1, .seed = 1};
  options.dry.multiplier = 0.8;
  options.xtc.probability = 0.5;
  options.logit_bias = {{1, -1}};
  Sampler sampler(options, static_cast<int64_t>(session->logits().size()), &engine_->tokenizer());
  (void)sampler.sample(session->logits(), session->tokens());
  const int64_t before = allocations.load();
  for (int i = 0; i < 64; ++i) {
    ids.push_back(sampler.sample(session->logits(), session->tokens()).value());
    ASSERT_TRUE(session->feed(ids, nullptr));
  }
  EXPECT_EQ(allocations.load() - before, 0);
}

GenerateOptions greedy(int64_t max_tokens) {
  return {.sampler = {.temperature = 0}, .max_tokens = max_tokens, .end_tokens = GenerateOptions::EndTokens::ignore};
}

TEST_P(EngineTest, AStopStringEndsTheAnswerAcrossTokens) {
  const auto session = open();
  GenerateOptions options = greedy(40);
  const std::string whole = session->generate(ids_, options)->text;
  for (size_t start = 1; start + 4 <= whole.size(); ++start) {
    const std::string stop = whole.substr(start, 4);
    if (valid_utf8_length(stop, 0) != stop.size()) continue;
    options.stop = {"is not there", stop};
    std::string streamed;
    options.on_text = [&](std::string_view text) { streamed += text; };
    const auto answer = session->generate(ids_, options);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->text, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(answer->text, streamed);
    EXPECT_EQ(answer->reason, FinishReason::stop_string);
  }
  options.stop = {""};
  EXPECT_FALSE(session->generate(ids_, options));
}

TEST_P(EngineTest, LogprobsAreThoseOfTheModel) {
  const auto session = open();
  GenerateOptions options = greedy(5);
  options.logprobs = 3;
  options.sampler.logit_bias = {{7, 1000}};
  const auto answer = session->generate(ids_, options);
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->logprobs.size(), 5U);
  for (const LogprobRow& row : answer->logprobs) {
    EXPECT_EQ(row.chosen.token, 7);
    EXPECT_LT(row.chosen.logprob, 0);
    ASSERT_EQ(row.top.size(), 3U);
    EXPECT_GE(row.top[0].logprob, row.chosen.logprob);  // of the distribution without the bias
  }
  options.logprobs = kMostLogprobs + 1;
  EXPECT_FALSE(session->generate(ids_, options));
}

TEST_P(EngineTest, AnAbsurdContextIsRefusedWithNumbers) {
  const auto engine = Engine::load({.model = "tests/data/tiny-" + GetParam() + ".gguf",
                                    .packed_folder = folder_,
                                    .context = int64_t{1} << 40,
                                    .memory_bytes = uint64_t{1} << 30});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(engine.error().message.find("--ctx"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Tiny, EngineTest, ::testing::Values("llama", "qwen2", "gemma3"));

}  // namespace
}  // namespace nanomind
