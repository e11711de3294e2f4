// SPDX-License-Identifier: Apache-2.0
// Field cases of the context and its cache (docs/field-cases.md), on a tiny random model through the public interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

constexpr int64_t kContext = 512;

class ContextFieldCases : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-field-test-" + std::to_string(::getpid()));
    engine_ = load({.context = kContext}).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::unique_ptr<Engine>> load(EngineOptions options) const {
    options.model = "tests/data/tiny-qwen2.gguf";
    options.packed_folder = folder_;
    options.threads = 2;
    return Engine::load(options);
  }
  std::unique_ptr<Session> open() const { return engine_->open_session().value(); }
  std::vector<TokenId> ids(std::string_view text) const {
    return engine_->tokenizer().encode(text, ControlTokens::recognise, Beginning::omit);
  }
  static GenerateOptions greedy(int64_t max_tokens) {
    return {.sampler = {.temperature = 0}, .max_tokens = max_tokens, .end_tokens = GenerateOptions::EndTokens::ignore};
  }

  std::filesystem::path folder_;
  std::unique_ptr<Engine> engine_;
};

std::string words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += " word" + std::to_string(i);
  return text;
}

TEST_F(ContextFieldCases, Ctx01OverflowIsAnErrorWithBothNumbers) {
  const auto session = open();
  const auto short_prompt = ids("Hello");
  ASSERT_TRUE(session->generate(short_prompt, greedy(4)));
  const auto held = std::vector<TokenId>(session->tokens().begin(), session->tokens().end());
  const auto prompt = ids("The secret is ANANAS-7734." + words(200));
  ASSERT_GT(prompt.size(), static_cast<size_t>(kContext));
  for (const bool streams : {false, true}) {
    GenerateOptions options = greedy(4);
    std::string streamed;
    if (streams) options.on_text = [&](std::string_view text) { streamed += text; };
    const auto answer = session->generate(prompt, options);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::context_full);
    EXPECT_THAT(answer.error().message, HasSubstr(std::to_string(prompt.size())));
    EXPECT_THAT(answer.error().message, HasSubstr(std::to_string(kContext)));
    EXPECT_EQ(streamed, "");
  }
  // What the session held before is untouched, and it goes on.
  EXPECT_TRUE(std::ranges::equal(session->tokens(), held));
  EXPECT_TRUE(session->generate(short_prompt, greedy(4)));
}

TEST_F(ContextFieldCases, Ctx01AnAnswerThatFillsTheContextSaysSo) {
  const auto session = open();
  const auto answer = session->generate(ids("Hello"), greedy(-1));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reason, FinishReason::context_full);
  EXPECT_EQ(session->tokens().size(), static_cast<size_t>(kContext));
}

TEST_F(ContextFieldCases, Ctx03OnlyWhatFollowsTheFirstChangeIsEvaluatedAgain) {
  const std::string rules = "You are the voice of a house." + words(30);
  const auto late_12 = ids(rules + "\nTime: 12:00\nIs the light on?"), late_13 = ids(rules + "\nTime: 13:00\nIs it?");
  const auto early_12 = ids("Time: 12:00\n" + rules), early_13 = ids("Time: 13:00\n" + rules);
  const auto common = [](const auto& a, const auto& b) { return std::ranges::mismatch(a, b).in1 - a.begin(); };
  const auto session = open();
  ASSERT_TRUE(session->generate(late_12, greedy(4)));
  const auto late = session->generate(late_13, greedy(4));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->cached_tokens, common(late_12, late_13));
  EXPECT_GT(late->cached_tokens, static_cast<int64_t>(late_13.size()) * 3 / 4);
  EXPECT_EQ(late->prompt_tokens, static_cast<int64_t>(late_13.size()) - late->cached_tokens);
  // The time at the top costs the whole prompt, and the numbers say so.
  ASSERT_TRUE(session->generate(early_12, greedy(4)));
  const auto early = session->generate(early_13, greedy(4));
  EXPECT_EQ(early->cached_tokens, common(early_12, early_13));
  EXPECT_LT(early->cached_tokens, static_cast<int64_t>(early_13.size()) / 4);
}

TEST_F(ContextFieldCases, Ctx03ABackgroundRequestDoesNotEvictAConversation) {
  const auto conversation = open();
  const auto first = ids("Rules." + words(20)), second = ids("Rules." + words(20) + "\nAnd then?");
  ASSERT_TRUE(conversation->generate(first, greedy(4)));
  for (int i = 0; i < 3; ++i) {
    const auto title = open();
    ASSERT_TRUE(title->generate(ids("Write a title for this talk." + words(5)), greedy(4)));
  }
  const auto answer = conversation->generate(second, greedy(4));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->cached_tokens, std::ranges::mismatch(first, second).in1 - first.begin());
  EXPECT_GT(answer->cached_tokens, 20);
}

TEST_F(ContextFieldCases, Ctx04OnlyTheSessionThatFindsNoRoomFails) {
  const std::vector<TokenId> prompt(static_cast<size_t>(kContext) / 4 - 8, 3);
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<TokenId>> answers;
  for (int i = 0; i < 4; ++i) {
    sessions.push_back(open());
    const auto answer = sessions.back()->generate(prompt, greedy(4));
    ASSERT_TRUE(answer) << answer.error().message;
    answers.push_back(answer->tokens);
  }
  const auto fifth = open();
  const auto refused = fifth->generate(prompt, greedy(4));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  for (size_t i = 0; i < sessions.size(); ++i) {
    const auto again = sessions[i]->generate(prompt, greedy(4));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->tokens, answers[i]);
  }
  sessions.pop_back();
  EXPECT_TRUE(fifth->generate(prompt, greedy(4)));
}

TEST_F(ContextFieldCases, Ctx06ARepeatFromTheCacheGivesTheSameAnswer) {
  const auto prompt = ids("def add(a, b):" + words(20));
  const auto session = open();
  std::vector<std::vector<float>> logits;
  std::vector<std::string> texts;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(session->feed(prompt, nullptr));
    logits.emplace_back(session->logits().begin(), session->logits().end());
    const auto answer = session->generate(prompt, greedy(12));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->cached_tokens, static_cast<int64_t>(prompt.size()) - 1);  // `feed` brought them
    texts.push_back(answer->text);
  }
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
  // The last token alone rounds otherwise than in the whole prompt, by far less than models of 16-bit weights differ
  // (docs/architecture.md); repeats from the cache are equal bit for bit, and so are those of new sessions.
  EXPECT_EQ(logits[2], logits[1]);
  for (size_t i = 0; i < logits[0].size(); ++i) ASSERT_NEAR(logits[1][i], logits[0][i], 0.01F);
  const auto fresh = open();
  ASSERT_TRUE(fresh->feed(prompt, nullptr));
  EXPECT_TRUE(std::ranges::equal(fresh->logits(), logits[0]));
}

size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

// Bytes that were allocated and not freed; the C library counts them (0 under sanitizers, which look for leaks anyway).
size_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(ContextFieldCases, Ctx07MemoryAndFilesStayAsTheyAreOverManyRequests) {
  std::atomic<bool> cancel{false};
  const std::vector<TokenId> oversize(static_cast<size_t>(kContext) + 1, 3);
  const auto request = [&](int i) {
    const auto session = open();
    GenerateOptions options = greedy(1 + i % 5);
    options.cancel = &cancel;
    cancel = false;
    options.on_text = [&](std::string_view) { cancel = i % 3 == 0; };
    if (i % 4 == 1) options.constraint = Constraint{.kind = Constraint::Kind::regex, .source = "[a-c]{2}"};
    if (i % 7 == 2) options.constraint = Constraint{.kind = Constraint::Kind::regex, .source = "(a"};
    (void)session->generate(i % 5 == 3 ? oversize : ids("Request " + std::to_string(i)), options);
  };
  for (int i = 0; i < 420; ++i) request(i);  // a whole number of rounds; buffers have their sizes afterwards
  const size_t files = open_files(), bytes = allocated_bytes();
  for (int i = 0; i < 1680; ++i) request(i);
  EXPECT_EQ(open_files(), files);
  EXPECT_NEAR(static_cast<double>(allocated_bytes()), static_cast<double>(bytes), 64 << 10);
  // All of the cache is free again.
  EXPECT_TRUE(open()->feed(std::vector<TokenId>(static_cast<size_t>(kContext), 3), nullptr));
}

TEST_F(ContextFieldCases, Ctx09AContextThatDoesNotFitIsRefusedWithNumbersBeforeAnythingIsAllocated) {
  const auto refused = load({.context = int64_t{1} << 40, .memory_bytes = uint64_t{64} << 20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(refused.error().message, HasSubstr("64 MB are available"));
  // The context that the message offers does fit.
  const std::string& message = refused.error().message;
  const size_t at = message.find("--ctx ");
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t offered = std::stoll(message.substr(at + 6));
  const auto engine = load({.context = offered, .memory_bytes = uint64_t{80} << 20});
  ASSERT_TRUE(engine) << engine.error().message;
  // The cache is as large as it was counted, before the first token and for good.
  const EngineInfo& info = (*engine)->info();
  EXPECT_EQ(info.context, offered);
  EXPECT_LE(info.kv_bytes + info.weight_bytes + info.activation_bytes, uint64_t{80} << 20);
}

TEST_F(ContextFieldCases, Ctx10TheContextIsKnownBeforeTheFirstQuestion) {
  EXPECT_EQ(engine_->info().context, kContext);
  EXPECT_EQ(open()->capacity(), kContext);
  EXPECT_EQ(engine_->info().trained_context, 256);  // as the file says
  const auto by_default = load({});
  ASSERT_TRUE(by_default);
  const EngineInfo& info = (*by_default)->info();
  EXPECT_EQ(info.context, std::min(info.trained_context, kDefaultContext));
}

}  // namespace
}  // namespace nanomind
