// SPDX-License-Identifier: Apache-2.0
// Answers under a grammar on tiny random models, which would keep to none by themselves: every kind of grammar holds,
// whatever the sampling; what cannot be met is refused; thoughts before the answer have no grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/engine.h"
#include "runtime/test_engine.h"

namespace nanomind {
namespace {

class ConstrainedTest : public testing::TinyEngineTest {
 protected:
  Result<Generation> answer(Constraint constraint, GenerateOptions options = {.max_tokens = 100}) {
    options.constraint = std::move(constraint);
    session_ = open();
    return session_->generate(ids_, options);
  }
  std::unique_ptr<Session> session_;
};

// Characters of several bytes, which several tokens make up.
TEST_P(ConstrainedTest, Tool09MultiByteTextsComeOutWhole) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto got = answer({Constraint::Kind::json_schema, R"({"enum":["서울","부산","😀"]})"},
                            {.sampler = {.temperature = 2, .seed = seed}, .max_tokens = 100});
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(got->text == "\"서울\"" || got->text == "\"부산\"" || got->text == "\"😀\"") << got->text;
    EXPECT_EQ(got->reason, FinishReason::end_of_text);
  }
}

TEST_P(ConstrainedTest, EveryKindOfGrammarHolds) {
  const std::pair<Constraint, std::string> kinds[] = {
      {{Constraint::Kind::regex, "[0-9]{3}-[a-f]{2}"}, "[0-9]{3}-[a-f]{2}"},
      {{Constraint::Kind::lark, "start: \"(\" /[xy]/ start? \")\""}, "[()xy]+"},
      {{Constraint::Kind::gbnf, "root ::= \"- \" [a-c]{3} \"\\n\""}, "- [a-c]{3}\n"}};
  for (const auto& [constraint, expected] : kinds) {
    const auto got = answer(constraint);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_THAT(got->text, ::testing::MatchesRegex(expected));
    if (got->tokens.size() < 100) {
      EXPECT_EQ(got->reason, FinishReason::end_of_text);
    }
  }
}

TEST_P(ConstrainedTest, TextWithoutAChoiceIsNotSampled) {
  const std::string text = "def nothing(): return None";
  const auto got = answer({Constraint::Kind::regex, "def nothing\\(\\): return None"});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->text, text);
  EXPECT_GE(got->forced_tokens, 5);
}

// A model that likes nothing better than white space.
TEST_P(ConstrainedTest, Tool04WhiteSpaceDoesNotGoOnForEver) {
  GenerateOptions options{.sampler = {.temperature = 1, .seed = 1}, .max_tokens = 1000};
  for (TokenId id = 0; id < engine_->tokenizer().vocabulary_size(); ++id) {
    const std::string_view bytes = engine_->tokenizer().bytes(id);
    const bool white = !bytes.empty() && bytes.find_first_not_of(" \t\r\n") == std::string_view::npos;
    if (white) options.sampler.logit_bias.push_back({id, 1000});
  }
  engine_ = load({.context = 2000});
  const auto got =
      answer({Constraint::Kind::json_schema, R"({"type":"object","properties":{"a":{"enum":[1,2]}},"required":["a"],)"
                                             R"("additionalProperties":false})"},
             options);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->reason, FinishReason::end_of_text);
  EXPECT_TRUE(nlohmann::json::accept(got->text)) << got->text;
  EXPECT_LT(got->text.size(), 200U);
}

TEST_P(ConstrainedTest, WhatCannotBeMetIsRefusedBeforeThePromptIsRead) {
  const Constraint wrong[] = {{Constraint::Kind::json_schema, "{"},
                              {Constraint::Kind::json_schema, R"({"type":"integer","minimum":5,"maximum":4})"},
                              {Constraint::Kind::json_schema, "false"},
                              {Constraint::Kind::regex, "(a"},
                              {Constraint::Kind::lark, "start: nothing"},
                              {Constraint::Kind::gbnf, "root ::= nothing"}};
  for (const Constraint& constraint : wrong) {
    const auto got = answer(constraint);
    ASSERT_FALSE(got) << constraint.source;
    EXPECT_EQ(got.error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(session_->tokens().empty());
  }
}

// A budget closes the reasoning; the answer, and only that, keeps to its grammar.
TEST_P(ConstrainedTest, Tok06ReasoningHasABudgetAndNoGrammar) {
  for (const int64_t budget : {0, 1, 7}) {
    GenerateOptions options{.sampler = {.temperature = 0},
                            .max_tokens = 100,
                            .end_tokens = GenerateOptions::EndTokens::ignore,
                            .stop = {"never"}};
    options.reasoning = {.markers = {.open = "<think>", .close = "</think>"},
                         .start = ReasoningSplitter::Start::reasoning,
                         .budget = budget};
    std::string thoughts, text;
    options.on_reasoning = [&](std::string_view piece) { thoughts += piece; };
    options.on_text = [&](std::string_view piece) { text += piece; };
    const auto got = answer({Constraint::Kind::regex, "ok[0-9]"}, options);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_THAT(got->text, ::testing::MatchesRegex("ok[0-9]"));
    EXPECT_EQ(got->text, text);
    EXPECT_EQ(got->reasoning, thoughts);
    EXPECT_GE(got->reasoning_tokens, budget);
    EXPECT_EQ(got->reasoning.find("</think>"), std::string::npos);
    EXPECT_EQ(got->reason, FinishReason::end_of_text);
  }
}

TEST_P(ConstrainedTest, Tok06ReasoningThatIsNotClosedIsNoAnswer) {
  GenerateOptions options{
      .sampler = {.temperature = 0}, .max_tokens = 9, .end_tokens = GenerateOptions::EndTokens::ignore};
  options.reasoning = {.markers = {.open = "<think>", .close = "</think>"},
                       .start = ReasoningSplitter::Start::reasoning};
  const auto got = open()->generate(ids_, options);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->text, "");
  EXPECT_EQ(got->reasoning_tokens, 9);
  EXPECT_EQ(got->reason, FinishReason::length);
}

TEST_P(ConstrainedTest, BiasAndGrammarTogetherMayLeaveNothing) {
  GenerateOptions options{.max_tokens = 10};
  for (TokenId id = 0; id < engine_->tokenizer().vocabulary_size(); ++id) {
    if (engine_->tokenizer().bytes(id).starts_with('a')) {
      options.sampler.logit_bias.push_back({id, -std::numeric_limits<double>::infinity()});
    }
  }
  const auto got = answer({Constraint::Kind::regex, "a|aa"}, options);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ConstrainedTest, ::testing::Values("llama", "qwen2", "gemma3"));

}  // namespace
}  // namespace nanomind
