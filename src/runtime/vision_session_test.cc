// SPDX-License-Identifier: Apache-2.0
// Sessions that see: prefixes with pictures, several answers about pictures in shared steps, and what cancelling
// leaves; on tiny models of the kinds that steps treat differently.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>

#include "base/mapped_file.h"
#include "runtime/engine.h"

namespace nanomind {
namespace {

GenerateOptions greedy() {
  return {.sampler = {.temperature = 0}, .max_tokens = 6, .end_tokens = GenerateOptions::EndTokens::ignore};
}

// By the names of their files in tests/data/vision.
class VisionSession : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-vision-session-" + std::to_string(::getpid()));
    engine_ = load();
    ASSERT_TRUE(engine_);
  }
  std::unique_ptr<Engine> load() {
    const std::string data = "tests/data/vision/";
    auto engine = Engine::load({.model = data + "tiny-" + GetParam() + ".gguf",
                                .packed_folder = folder_,
                                .vision = data + "mmproj-tiny-" + GetParam() + ".gguf",
                                .threads = 2,
                                .context = 1024,
                                .cache = 4096});
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Message about(const std::string& picture, const std::string& question) {
    const auto file = MappedFile::open("tests/data/vision/" + picture);
    auto seen = engine_->see(file->bytes());
    EXPECT_TRUE(seen) << seen.error().message;
    return {.role = "user", .content = question, .pictures = {std::move(seen->prompt)}};
  }
  std::vector<TokenId> prompt(const std::vector<Message>& messages) {
    return engine_->chat_prompt(messages, {.tools = {}, .thinking = false})->tokens;
  }
  std::vector<TokenId> ask(const std::string& picture, const std::string& question) {
    return prompt({about(picture, question)});
  }
  static Generation answer(Session& session, const std::vector<TokenId>& tokens, int64_t turn_end = 0) {
    GenerateOptions options = greedy();
    options.turn_end = turn_end;
    auto generation = session.generate(tokens, options);
    EXPECT_TRUE(generation) << generation.error().message;
    return std::move(*generation);
  }

  std::filesystem::path folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(VisionSession, ThePrefixCacheTellsPicturesApart) {
  const auto one = ask("100x40.png", "What is it?"), other = ask("200x150.png", "What is it?");
  const auto fresh = std::move(*engine_->open_session());
  const Generation expected = answer(*fresh, other);
  const auto session = std::move(*engine_->open_session());
  answer(*session, one);
  const Generation second = answer(*session, other);
  EXPECT_EQ(second.tokens, expected.tokens);
  // Not beyond where the pictures begin.
  const auto first = std::ranges::find_if(other, [](TokenId token) { return token < 0; }) - other.begin();
  EXPECT_LE(second.cached_tokens, first);
  const Generation again = answer(*session, other);
  EXPECT_EQ(again.tokens, expected.tokens);
  EXPECT_GT(again.cached_tokens, first);
}

TEST_P(VisionSession, AFollowUpReadsOnlyWhatIsNew) {
  const Message question = about("64x64.png", "What is it?");
  const auto session = std::move(*engine_->open_session());
  const auto first = *engine_->chat_prompt({&question, 1}, {.tools = {}, .thinking = false});
  answer(*session, first.tokens, first.turn_end);
  const auto next = prompt({question, {.role = "assistant", .content = "A thing."}, about("30x90.png", "And this?")});
  const Generation generation = answer(*session, next);
  EXPECT_GT(generation.cached_tokens, static_cast<int64_t>(first.tokens.size()) / 2);
  const auto fresh = std::move(*engine_->open_session());
  EXPECT_EQ(answer(*fresh, next).tokens, generation.tokens);
}

// A prompt that differs after some rows of a picture, as none does, but as a step that failed may leave a session.
TEST_P(VisionSession, APictureThatWasReadInPartIsReadRight) {
  const auto tokens = ask("64x64.png", "What is it?");
  const auto fresh = std::move(*engine_->open_session());
  const Generation expected = answer(*fresh, tokens);
  const auto first = std::ranges::find_if(tokens, [](TokenId token) { return token < 0; }) - tokens.begin();
  const auto session = std::move(*engine_->open_session());
  ASSERT_TRUE(session->feed(std::span(tokens).first(static_cast<size_t>(first) + 5), nullptr));
  EXPECT_EQ(answer(*session, tokens).tokens, expected.tokens);
}

TEST_P(VisionSession, AnswersAboutPicturesShareSteps) {
  const std::vector<std::vector<TokenId>> prompts{ask("100x40.png", "What is it?"),
                                                  prompt({{.role = "user", .content = "Hello."}}),
                                                  ask("200x150.png", "And this?")};
  std::vector<Generation> alone;
  for (const auto& tokens : prompts) alone.push_back(answer(**engine_->open_session(), tokens));
  const auto batch = engine_->open_batch();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::optional<Generation>> together(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    sessions.push_back(std::move(*engine_->open_session()));
    ASSERT_TRUE(batch->add(*sessions[i], prompts[i], greedy(), [&, i](Result<Generation> got) {
      ASSERT_TRUE(got) << got.error().message;
      together[i] = std::move(*got);
    }));
  }
  while (batch->step()) {
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(together[i]);
    EXPECT_EQ(together[i]->tokens, alone[i].tokens) << i;
  }
}

TEST_P(VisionSession, ACancelledPromptLeavesTheNextOneItsRoom) {
  const auto tokens = ask("200x150.png", "What is it?");
  const auto session = std::move(*engine_->open_session());
  std::atomic<bool> cancel = true;
  GenerateOptions options = greedy();
  options.cancel = &cancel;
  const auto stopped = session->generate(tokens, options);
  ASSERT_TRUE(stopped) << stopped.error().message;
  EXPECT_EQ(stopped->reason, FinishReason::cancelled);
  const auto fed = session->feed(tokens, &cancel);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().code, ErrorCode::cancelled);
  const auto fresh = std::move(*engine_->open_session());
  EXPECT_EQ(answer(*session, tokens).tokens, answer(*fresh, tokens).tokens);
}

// The pictures are shown in another order, so that they have other tokens.
TEST_P(VisionSession, ASavedSessionGoesOnInAnotherEngine) {
  const auto path = folder_ / "talk.session";
  const auto talk = [&](const Message& one, const Message& two) {
    return prompt({one, {.role = "assistant", .content = "A thing."}, two});
  };
  const Message one = about("100x40.png", "What is it?");
  const auto before = talk(one, about("200x150.png", "And this?"));
  std::vector<TokenId> expected;
  {
    const auto session = std::move(*engine_->open_session());
    ASSERT_TRUE(session->feed(before, nullptr));
    ASSERT_TRUE(session->save(path));
    expected = answer(*session, before).tokens;
  }

  engine_ = load();
  const auto next = std::move(*engine_->open_session());
  const auto unseen = next->restore(path);
  ASSERT_FALSE(unseen);
  EXPECT_EQ(unseen.error().code, ErrorCode::invalid_argument);
  const Message second = about("200x150.png", "And this?");
  const auto tokens = talk(about("100x40.png", "What is it?"), second);
  EXPECT_NE(tokens, before);
  const auto restored = next->restore(path);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_TRUE(std::ranges::equal(next->tokens(), tokens));
  const Generation generation = answer(*next, tokens);
  EXPECT_EQ(generation.tokens, expected);
  EXPECT_EQ(generation.cached_tokens, static_cast<int64_t>(tokens.size()) - 1);
}

INSTANTIATE_TEST_SUITE_P(Models, VisionSession,
                         ::testing::Values("idefics3", "minicpmv4_6", "llava_onevision", "gemma3", "qwen3_vl"));

}  // namespace
}  // namespace nanomind
