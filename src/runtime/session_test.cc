// SPDX-License-Identifier: Apache-2.0
// Sessions beyond one answer: several in one batch, saved and restored, with guesses, sliding; what must not change
// what the model says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/engine.h"
#include "tests/support/difference.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_models.h"

namespace nanomind {
namespace {

using testing::relative_difference;

namespace fs = std::filesystem;

// A batch computes by other products than single steps, in 16-bit fixed point; far above what that moves, far below
// what a wrong token, position or mask does.
constexpr double kTolerance = 2e-3;

GenerateOptions greedy(int64_t max_tokens) {
  return {.sampler = {.temperature = 0}, .max_tokens = max_tokens, .end_tokens = GenerateOptions::EndTokens::ignore};
}

class SessionTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("nanomind-session-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    ids_ = testing::golden(std::string("tiny-") + GetParam())["ids"].get<std::vector<TokenId>>();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<Engine> load(int64_t context = 128, int64_t cache = 512, const std::string& device = "cpu") const {
    EngineOptions options{.model = std::string("tests/data/tiny-") + GetParam() + ".gguf", .packed_folder = folder_};
    options.device = device;
    options.threads = 2;
    options.context = context;
    options.cache = cache;
    options.precision = PromptPrecision::high;
    Result<std::unique_ptr<Engine>> engine = Engine::load(options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  std::vector<TokenId> prompt(size_t begin, size_t count) const {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(ids_[(begin + i) % ids_.size()]);
    return tokens;
  }

  fs::path folder_;
  std::vector<TokenId> ids_;
};

TEST_P(SessionTest, ABatchOfThreeWritesWhatEachWritesAlone) {
  const auto engine = load();
  const std::vector<TokenId> prompts[] = {prompt(0, ids_.size()), prompt(3, 5), prompt(7, 40)};
  GenerateOptions options = greedy(12);
  options.logprobs = 0;
  std::vector<Generation> alone;
  for (const auto& tokens : prompts) {
    const auto session = std::move(*engine->open_session());
    alone.push_back(*session->generate(tokens, options));
  }
  const auto batch = engine->open_batch();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::optional<Generation>> together(3);
  for (size_t i = 0; i < 3; ++i) {
    sessions.push_back(std::move(*engine->open_session()));
    ASSERT_TRUE(batch->add(*sessions[i], prompts[i], options, [&, i](Result<Generation> got) {
      ASSERT_TRUE(got) << got.error().message;
      together[i] = std::move(*got);
    }));
    EXPECT_FALSE(batch->add(*sessions[i], prompts[i], options, [](const Result<Generation>&) {}));
    if (i == 1) batch->step();  // the third comes later
  }
  int steps = 1;
  while (batch->step()) ++steps;
  EXPECT_LE(steps, 17);  // shared: not one for each token of each answer
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(together[i]);
    EXPECT_EQ(together[i]->tokens, alone[i].tokens) << i;
    for (size_t t = 0; t < alone[i].logprobs.size(); ++t)
      EXPECT_NEAR(together[i]->logprobs[t].chosen.logprob, alone[i].logprobs[t].chosen.logprob, 0.01) << i;
  }
}

TEST_P(SessionTest, OneOfABatchFailsAloneAndAnotherIsCancelledAlone) {
  const auto engine = load(128, 192);
  const auto batch = engine->open_batch();
  const auto holder = std::move(*engine->open_session()), other = std::move(*engine->open_session()),
             late = std::move(*engine->open_session());
  std::atomic<bool> cancel{false};
  GenerateOptions stoppable = greedy(-1);
  stoppable.cancel = &cancel;
  std::optional<Result<Generation>> first, second, third;
  ASSERT_TRUE(batch->add(*holder, prompt(0, 64), greedy(70), [&](Result<Generation> got) { first = std::move(got); }));
  ASSERT_TRUE(batch->add(*other, prompt(0, 10), stoppable, [&](Result<Generation> got) { second = std::move(got); }));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(batch->step());
  // All three blocks are taken.
  ASSERT_TRUE(batch->add(*late, prompt(0, 20), greedy(5), [&](Result<Generation> got) { third = std::move(got); }));
  ASSERT_TRUE(batch->step());
  ASSERT_TRUE(third);
  ASSERT_FALSE(*third);
  EXPECT_EQ(third->error().code, ErrorCode::out_of_memory);
  cancel = true;
  while (batch->step()) {
  }
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(*first && *second);
  EXPECT_EQ((*second)->reason, FinishReason::cancelled);
  EXPECT_EQ((*first)->tokens.size(), 65U);  // 64 fill the context, and one more is sampled from that
  EXPECT_EQ((*first)->reason, FinishReason::context_full);
}

TEST_P(SessionTest, ASavedSessionGoesOnInAnotherEngine) {
  const fs::path path = folder_ / "talk.session";
  const std::vector<TokenId> begin = prompt(0, 70), more = prompt(0, 90);
  std::vector<float> expected;
  {
    const auto engine = load();
    const auto session = std::move(*engine->open_session());
    ASSERT_TRUE(session->feed(begin, nullptr));
    ASSERT_TRUE(session->save(path));
    ASSERT_TRUE(session->feed(more, nullptr));
    expected.assign(session->logits().begin(), session->logits().end());
  }
  const auto engine = load();
  const auto session = std::move(*engine->open_session());
  ASSERT_TRUE(session->feed(prompt(5, 30), nullptr));
  const auto restored = session->restore(path);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_TRUE(std::ranges::equal(session->tokens(), begin));
  const auto answer = session->generate(more, greedy(0));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->cached_tokens, 70);
  ASSERT_TRUE(session->feed(more, nullptr));
  EXPECT_LT(relative_difference(session->logits(), expected), kTolerance);
  // The same question once more: recurrent states have their snapshot.
  ASSERT_TRUE(session->restore(path));
  EXPECT_EQ(session->generate(begin, greedy(0))->cached_tokens, 69);
}

TEST_P(SessionTest, DamagedAndForeignFilesAreRefusedAndNothingIsLost) {
  const fs::path path = folder_ / "talk.session", bad = folder_ / "bad.session";
  const auto engine = load();
  const auto session = std::move(*engine->open_session());
  const std::vector<TokenId> tokens = prompt(0, 20);
  ASSERT_TRUE(session->feed(tokens, nullptr));
  ASSERT_TRUE(session->save(path));
  std::ifstream file(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  const auto restore = [&](const std::string& bytes) {
    std::ofstream(bad, std::ios::binary) << bytes;
    const auto restored = session->restore(bad);
    EXPECT_TRUE(std::ranges::equal(session->tokens(), tokens));
    return restored ? std::optional<ErrorCode>() : restored.error().code;
  };
  EXPECT_EQ(restore(good), std::nullopt);
  EXPECT_EQ(restore(""), ErrorCode::corrupt);
  EXPECT_EQ(restore(good.substr(0, good.size() - 1)), ErrorCode::corrupt);
  EXPECT_EQ(restore(good + "x"), ErrorCode::corrupt);
  EXPECT_EQ(restore(std::string(500, 'x')), ErrorCode::corrupt);
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 97) {
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    EXPECT_NE(restore(changed), std::nullopt) << at;
  }
  EXPECT_EQ(session->restore(folder_ / "nothing").error().code, ErrorCode::not_found);
  const auto small = load(64, 64);
  const auto short_session = std::move(*small->open_session());
  ASSERT_TRUE(session->feed(prompt(0, 100), nullptr));
  ASSERT_TRUE(session->save(path));
  EXPECT_EQ(short_session->restore(path).error().code, ErrorCode::context_full);
  const auto full = load(128, 128);
  const auto holder = std::move(*full->open_session()), waiting = std::move(*full->open_session());
  ASSERT_TRUE(holder->feed(prompt(0, 10), nullptr));
  EXPECT_EQ(waiting->restore(path).error().code, ErrorCode::out_of_memory);
  EXPECT_FALSE(session->save(folder_ / "no folder" / "talk"));
}

TEST_P(SessionTest, GuessesDoNotChangeTheText) {
  const auto engine = load(256, 512);
  const auto plain = std::move(*engine->open_session()), guessing = std::move(*engine->open_session());
  const auto small = load(256, 256);
  const auto draft = std::move(*small->open_session());
  // Tokens that come again, so that there is something to look up.
  std::vector<TokenId> tokens = prompt(0, ids_.size());
  tokens.insert(tokens.end(), ids_.begin(), ids_.end());
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions options = greedy(60);
    options.sampler.temperature = temperature;
    options.sampler.seed = 5;
    options.sampler.repetition_penalty = temperature == 0 ? 1.0 : 1.1;
    const auto expected = plain->generate(tokens, options);
    ASSERT_TRUE(expected);
    options.speculation = {.kind = SpeculationOptions::Kind::lookup};
    const auto looked_up = guessing->generate(tokens, options);
    ASSERT_TRUE(looked_up);
    EXPECT_EQ(looked_up->tokens, expected->tokens);
    if (temperature == 0) {
      EXPECT_GT(looked_up->drafted_tokens, 0);
    }
    EXPECT_TRUE(std::ranges::equal(guessing->tokens(), plain->tokens()));
    options.speculation = {.kind = SpeculationOptions::Kind::model, .draft = draft.get()};
    const auto drafted = guessing->generate(tokens, options);
    ASSERT_TRUE(drafted);
    EXPECT_EQ(drafted->tokens, expected->tokens);
    EXPECT_EQ(drafted->reason, expected->reason);
  }
}

TEST_P(SessionTest, AFullContextEndsAnAnswerWithGuessesAsItDoesWithout) {
  const auto engine = load(64, 128);
  const auto plain = std::move(*engine->open_session()), guessing = std::move(*engine->open_session());
  GenerateOptions options = greedy(-1);
  const auto expected = plain->generate(prompt(0, 30), options);
  options.speculation = {.kind = SpeculationOptions::Kind::lookup};
  const auto got = guessing->generate(prompt(0, 30), options);
  ASSERT_TRUE(expected && got);
  EXPECT_EQ(got->tokens, expected->tokens);
  EXPECT_EQ(got->reason, FinishReason::context_full);
}

TEST_P(SessionTest, AStepThatFailsLeavesTheSessionUsable) {
  const auto engine = load();
  const auto session = std::move(*engine->open_session()), fresh = std::move(*engine->open_session());
  ASSERT_TRUE(session->feed(prompt(0, 20), nullptr));
  std::atomic<bool> cancel{true};
  const auto fed = session->feed(prompt(0, 60), &cancel);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().code, ErrorCode::cancelled);
  ASSERT_TRUE(session->feed(prompt(0, 60), nullptr));
  const std::vector<float> got(session->logits().begin(), session->logits().end());
  ASSERT_TRUE(fresh->feed(prompt(0, 60), nullptr));
  EXPECT_LT(relative_difference(got, fresh->logits()), kTolerance);
}

TEST_P(SessionTest, AnEndlessChatForgetsTheMiddleAndGoesOn) {
  const auto engine = load(256, 512);
  const SessionOptions slide{.overflow = Overflow::slide, .keep = 50};
  const auto session = std::move(*engine->open_session(slide));
  // 256 tokens fit; of the three blocks after the first one goes, then another, and so on.
  const std::vector<TokenId> begin = prompt(0, 200);
  const auto answer = session->generate(begin, greedy(300));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->tokens.size(), 300U);
  EXPECT_EQ(answer->reason, FinishReason::length);
  std::vector<TokenId> text = begin;
  text.insert(text.end(), answer->tokens.begin(), answer->tokens.end());
  EXPECT_TRUE(std::ranges::equal(session->tokens(), std::span(text).first(499)));
  EXPECT_EQ(answer->dropped_tokens, 4 * 64);

  // The next turn reads what is new, as long as it does not change what has been forgotten.
  for (int i = 0; i < 5; ++i) text.push_back(ids_[0]);
  const auto next = session->generate(text, greedy(1));
  ASSERT_TRUE(next);
  EXPECT_EQ(next->cached_tokens, 499);
  // Another text after the first 100 tokens: only the kept beginning is of use, where no recurrent state is needed.
  text.resize(100);
  text.push_back(ids_[1] + 1);
  const auto other = session->generate(text, greedy(1));
  ASSERT_TRUE(other);
  EXPECT_LE(other->cached_tokens, 64);
  // From then on it is as new.
  const auto fresh = std::move(*engine->open_session());
  ASSERT_TRUE(session->feed(text, nullptr));
  const std::vector<float> got(session->logits().begin(), session->logits().end());
  ASSERT_TRUE(fresh->feed(text, nullptr));
  EXPECT_LT(relative_difference(got, fresh->logits()), kTolerance);
}

TEST_P(SessionTest, APromptThatIsTooLongSlidesThroughAndIsSavedAsItIs) {
  const fs::path path = folder_ / "long.session";
  const auto engine = load(256, 512);
  const SessionOptions slide{.overflow = Overflow::slide};
  const auto session = std::move(*engine->open_session(slide)), restored = std::move(*engine->open_session(slide));
  const std::vector<TokenId> text = prompt(0, 600);
  ASSERT_TRUE(session->feed(text, nullptr));
  ASSERT_TRUE(session->save(path));
  const auto read = restored->restore(path);
  ASSERT_TRUE(read) << read.error().message;
  const std::vector<TokenId> more = prompt(0, 605);
  ASSERT_TRUE(session->feed(more, nullptr));
  const std::vector<float> expected(session->logits().begin(), session->logits().end());
  EXPECT_EQ(restored->generate(more, greedy(0))->cached_tokens, 600);
  ASSERT_TRUE(restored->feed(more, nullptr));
  EXPECT_LT(relative_difference(restored->logits(), expected), kTolerance);
}

TEST_P(SessionTest, SlidingNeedsRoom) {
  const auto engine = load(128, 128);
  const auto refused = engine->open_session({.overflow = Overflow::slide, .keep = 64});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("192"), std::string::npos);
}

TEST(Session, LearnedPositionsCannotSlide) {
  const fs::path folder = fs::temp_directory_path() / ("nanomind-session-test-" + std::to_string(::getpid()));
  EngineOptions options{.model = "tests/data/tiny-gpt2.gguf", .packed_folder = folder};
  options.threads = 1;
  const auto engine = Engine::load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  const auto refused = (*engine)->open_session({.overflow = Overflow::slide, .keep = 0});
  ASSERT_FALSE(refused);
  fs::remove_all(folder);
}

// Attention over everything, a window, and recurrent states.
INSTANTIATE_TEST_SUITE_P(Tiny, SessionTest, ::testing::Values("llama", "gemma3", "qwen35", "lfm2"),
                         [](const auto& test) { return testing::test_name(test.param); });

}  // namespace
}  // namespace nanomind
