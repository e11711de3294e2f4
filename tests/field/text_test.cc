// SPDX-License-Identifier: Apache-2.0
// Field cases of texts that cross several parts (docs/field-cases.md): a NUL in a text ends nothing anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/engine.h"
#include "text/grammar.h"
#include "text/json_call.h"

namespace nanomind {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

class TextFieldCases : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-field-text-test-" + std::to_string(::getpid()));
    engine_ =
        Engine::load({.model = "tests/data/tiny-qwen2.gguf", .packed_folder = folder_, .threads = 2, .context = 512})
            .value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string spelled(std::span<const TokenId> tokens) const {
    std::string text;
    for (const TokenId token : tokens) text += engine_->tokenizer().bytes(token);
    return text;
  }

  std::filesystem::path folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(TextFieldCases, Tok03ANulInAQuestionEndsNothing) {
  const std::string question = "say the words: BANANA\0APPLE"s;
  const Message messages[] = {{.role = "user", .content = question}};
  const auto prompt = engine_->chat_prompt(messages, {});
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_THAT(spelled(prompt->tokens), HasSubstr(question));
}

TEST_F(TextFieldCases, Tok03ANulInStopStringsGrammarsAndCallsEndsNothing) {
  const auto session = std::move(*engine_->open_session());
  const TokenId prompt[] = {1, 2, 3};
  GenerateOptions options{.sampler = {.temperature = 0}, .max_tokens = 50};
  options.constraint = Constraint{.kind = Constraint::Kind::regex, .source = "BANANA\\x00APPLE"};
  auto answer = session->generate(prompt, options);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->text, "BANANA\0APPLE"s);
  // Only the whole stop string ends the answer, not what stands before its NUL.
  options.stop = {"BANANA\0PLUM"s};
  EXPECT_EQ(session->generate(prompt, options)->text, "BANANA\0APPLE"s);
  options.stop = {"\0APP"s};
  answer = session->generate(prompt, options);
  EXPECT_EQ(answer->text, "BANANA");
  EXPECT_EQ(answer->reason, FinishReason::stop_string);

  ToolCallParser parser({.format = ToolFormat::hermes, .names = {"say"}, .takes_text = {}});
  std::string arguments;
  for (const ToolEvent& event :
       parser.push("<tool_call>{\"name\": \"say\", \"arguments\": {\"words\": \"BANANA\\u0000APPLE\"}}</tool_call>")) {
    if (event.kind == ToolEvent::Kind::arguments) arguments += event.text;
  }
  EXPECT_EQ(arguments, R"({"words": "BANANA\u0000APPLE"})");
  EXPECT_EQ(decode_json_string(encode_json_string("BANANA\0APPLE"s)), "BANANA\0APPLE"s);
}

}  // namespace
}  // namespace nanomind
