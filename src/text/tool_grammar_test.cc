// SPDX-License-Identifier: Apache-2.0
// What a grammar lets through, ToolCallParser must read as calls of these tools: texts written by hand as each family
// writes them, and texts drawn at random.
#include "text/tool_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "text/bpe.h"
#include "text/grammar.h"
#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

const std::vector<CallableTool> kTools = {
    {"get_weather", R"({"type": "object", "properties": {"city": {"type": "string", "enum": ["Seoul", "\uc11c\uc6b8"]},
      "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7}, "minItems": 1, "maxItems": 3},
      "hot": {"type": "boolean"}}, "required": ["city", "days"]})"},
    {"stop", ""}};

constexpr ToolFormat kFormats[] = {ToolFormat::hermes, ToolFormat::xml,     ToolFormat::llama,
                                   ToolFormat::gemma,  ToolFormat::mistral, ToolFormat::lfm};

// A small vocabulary whose markers are control tokens, as those of Mistral and LFM2 are.
class ToolGrammarTest : public testing::Test {
 protected:
  ToolGrammarTest() { use_markers({"[TOOL_CALLS]", "[ARGS]", "<|tool_call_start|>", "<|tool_call_end|>"}); }

  void use_markers(const std::vector<std::string>& markers) {
    Vocabulary vocabulary = read_vocabulary("small-qwen2");
    vocabulary.pre_tokenizer = "qwen2";
    const auto end = std::ranges::find(vocabulary.tokens, "<|im_end|>");
    vocabulary.end = static_cast<TokenId>(end - vocabulary.tokens.begin());
    for (const std::string& marker : markers) {
      vocabulary.tokens.push_back(marker);
      vocabulary.types.push_back(TokenType::control);
      vocabulary.scores.push_back(0);
    }
    tokenizer_ = *make_bpe_tokenizer(std::move(vocabulary));
    vocabulary_.emplace(*GrammarVocabulary::create(*tokenizer_));
  }

  Grammar grammar(ToolFormat format, CallCount count = CallCount::some,
                  std::span<const CallableTool> tools = kTools) const {
    const auto lark = tool_grammar(tools, format, count, *tokenizer_);
    EXPECT_TRUE(lark) << lark.error().message;
    auto compiled = Grammar::from_lark(*lark, *vocabulary_);
    EXPECT_TRUE(compiled) << compiled.error().message << '\n' << *lark;
    return *std::move(compiled);
  }

  // Bits of the tokens that may come next.
  static std::vector<TokenId> allowed(Grammar& grammar) {
    std::vector<uint32_t> mask(grammar.mask_words());
    const auto done = grammar.allowed(mask);
    EXPECT_TRUE(done) << done.error().message;
    std::vector<TokenId> ids;
    for (size_t i = 0; i < mask.size() * 32; ++i) {
      if (mask[i / 32] >> (i % 32) & 1) ids.push_back(static_cast<TokenId>(i));
    }
    return ids;
  }

  std::string spelling(TokenId id) const {
    const std::string_view bytes = tokenizer_->bytes(id);
    return std::string(bytes.empty() ? tokenizer_->piece(id) : bytes);
  }

  // How much of a text the grammar lets through, token by token, and "." after it when the answer may end there.
  std::string taken(Grammar grammar, std::string_view text) const {
    std::string taken;
    for (const TokenId id : tokenizer_->encode(text, ControlTokens::recognise, Beginning::omit)) {
      if (!grammar.accept(id)) return taken;
      taken += spelling(id);
    }
    const auto next = allowed(grammar);
    if (std::ranges::find(next, *tokenizer_->end_token()) != next.end()) taken += '.';
    return taken;
  }

  // A text drawn token by token, with what is forced as the answer loop takes it. Empty when it does not end.
  std::string draw(Grammar grammar, uint32_t seed) const {
    std::mt19937 random(seed);
    std::string drawn;
    for (int step = 0; step < 3000 && !grammar.finished(); ++step) {
      const auto forced = grammar.forced_text();
      EXPECT_TRUE(forced);
      EXPECT_EQ(forced->find('\xff'), std::string::npos);
      std::vector<TokenId> next = tokenizer_->encode(*forced, ControlTokens::as_text, Beginning::omit);
      if (!next.empty()) next.pop_back();  // more may belong to the last one
      if (next.empty()) {
        const auto choices = allowed(grammar);
        if (choices.empty()) return "";
        next = {choices[random() % choices.size()]};
      }
      for (const TokenId id : next) {
        if (tokenizer_->ends_generation(id)) return drawn;
        EXPECT_TRUE(grammar.accept(id)) << drawn << '|' << spelling(id);
        drawn += spelling(id);
      }
    }
    EXPECT_TRUE(grammar.finished()) << drawn;
    return grammar.finished() ? drawn : "";
  }

  static std::vector<std::pair<std::string, nlohmann::json>> read(ToolFormat format, const std::string& text) {
    ToolCallParser parser({.format = format,
                           .names = {"get_weather", "stop", "note"},
                           .takes_text = [](std::string_view, std::string_view key) { return key == "city"; }});
    auto events = parser.push(text);
    std::ranges::move(parser.finish(), std::back_inserter(events));
    std::vector<std::pair<std::string, nlohmann::json>> calls;
    std::string arguments;
    for (const ToolEvent& event : events) {
      EXPECT_NE(event.kind, ToolEvent::Kind::text) << event.text;
      EXPECT_NE(event.kind, ToolEvent::Kind::cut) << text;
      if (event.kind == ToolEvent::Kind::call) calls.emplace_back(event.text, nlohmann::json());
      if (event.kind == ToolEvent::Kind::arguments) arguments += event.text;
      if (event.kind == ToolEvent::Kind::end) {
        calls.back().second = nlohmann::json::parse(std::exchange(arguments, ""), nullptr, false);
      }
    }
    return calls;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<GrammarVocabulary> vocabulary_;
};

TEST_F(ToolGrammarTest, OneOfIsAnyOf) {
  const std::vector<CallableTool> tools = {
      {"f", R"({"type": "object", "properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}})"}};
  for (const ToolFormat format : kFormats) grammar(format, CallCount::one, tools);
}

TEST_F(ToolGrammarTest, Tool07EachFamilyWritesAsItsModelsDo) {
  const std::pair<ToolFormat, std::string> calls[] = {
      {ToolFormat::hermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\", \"days\": [1, 2]}}\n"
       "</tool_call>\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"},
      {ToolFormat::xml,
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nSeoul\n</parameter>\n<parameter=days>\n[1, 2]\n"
       "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n</tool_call>"},
      {ToolFormat::llama,
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Seoul\", \"days\": [1, 2]}}; {\"name\": \"stop\", "
       "\"parameters\": {}}"},
      {ToolFormat::gemma,
       "```json\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Seoul\", \"days\": [1, 2]}}\n```\n"
       "```json\n{\"name\": \"stop\", \"parameters\": {}}\n```"},
      {ToolFormat::mistral,
       "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Seoul\", \"days\": [1, 2]}[TOOL_CALLS]stop[ARGS]{}"},
      {ToolFormat::lfm, "<|tool_call_start|>[get_weather(city=\"Seoul\", days=[1, 2]), stop()]<|tool_call_end|>"},
  };
  for (const auto& [format, text] : calls) {
    EXPECT_EQ(taken(grammar(format), text), text + ".");
    const auto got = read(format, text);
    ASSERT_EQ(got.size(), 2U) << text;
    EXPECT_EQ(got[0].first, "get_weather");
    EXPECT_EQ(got[0].second, nlohmann::json::parse(R"({"city": "Seoul", "days": [1, 2]})"));
    EXPECT_EQ(got[1].second, nlohmann::json::object());
    // One call means one.
    EXPECT_LT(taken(grammar(format, CallCount::one), text).size(), text.size());
  }
}

TEST_F(ToolGrammarTest, Tool07WhateverIsDrawnIsReadAsCallsThatMeetTheirSchemas) {
  for (const ToolFormat format : kFormats) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const std::string text = draw(grammar(format), seed);
      ASSERT_FALSE(text.empty()) << "format " << static_cast<int>(format) << ", seed " << seed;
      const auto calls = read(format, text);
      EXPECT_GE(calls.size(), 1U) << text;
      EXPECT_LE(calls.size(), kMostCalls) << text;
      for (const auto& [name, arguments] : calls) {
        ASSERT_TRUE(arguments.is_object()) << text;
        if (name == "stop") {
          EXPECT_TRUE(arguments.empty()) << text;
          continue;
        }
        EXPECT_TRUE(arguments["city"] == "Seoul" || arguments["city"] == "\uc11c\uc6b8") << text;
        ASSERT_TRUE(arguments["days"].is_array()) << text;
        EXPECT_TRUE(!arguments["days"].empty() && arguments["days"].size() <= 3) << text;
        for (const auto& day : arguments["days"]) EXPECT_TRUE(day.is_number_integer() && day >= 1 && day <= 7) << text;
        EXPECT_EQ(arguments.size(), arguments.contains("hot") ? 3U : 2U) << text;
      }
    }
  }
}

TEST_F(ToolGrammarTest, NothingButCallsIsAllowed) {
  for (const ToolFormat format : kFormats) {
    for (const char* text : {"Sure. ", "\n", "Hello", "<|im_end|>"}) {
      EXPECT_EQ(taken(grammar(format), text), "") << text;
    }
  }
  EXPECT_EQ(taken(grammar(ToolFormat::llama), R"({"name": "rm", "parameters": {}})"), R"({"name": ")");
  EXPECT_EQ(taken(grammar(ToolFormat::llama), R"({"name": "stop", "parameters": {"now": 1}})"),
            R"({"name": "stop", "parameters":)");
}

TEST_F(ToolGrammarTest, MarkersThatAreNoTokensAreText) {
  use_markers({});
  const std::string list = R"([TOOL_CALLS][{"name": "stop", "arguments": {}}, {"name": "stop", "arguments": {}}])";
  EXPECT_EQ(taken(grammar(ToolFormat::mistral), list), list + ".");
  const std::string call = "<|tool_call_start|>[stop()]<|tool_call_end|>";
  EXPECT_EQ(taken(grammar(ToolFormat::lfm), call), call + ".");
}

TEST_F(ToolGrammarTest, TextsOfXmlNeedNoQuotes) {
  const CallableTool tools[] = {{"note", R"({"type": "object", "properties": {"city": {"type": "string"}}})"}};
  const std::string text =
      "<tool_call>\n<function=note>\n<parameter=city>\nNew "
      "\"York\"\n\n</param\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(taken(grammar(ToolFormat::xml, CallCount::one, tools), text), text + ".");
  EXPECT_EQ(read(ToolFormat::xml, text)[0].second["city"], "New \"York\"\n\n</param");
}

TEST_F(ToolGrammarTest, SchemasAsAWholeAreKeptInJson) {
  const CallableTool tools[] = {
      {"note", R"({"type": "object", "properties": {"at": {"$ref": "#/$defs/p"}}, "required": ["at"],
                   "$defs": {"p": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}}})"},
      {"stop", ""}};
  const std::string xml = "<tool_call>\n{\"name\": \"note\", \"arguments\": {\"at\": [1, 2]}}\n</tool_call>";
  EXPECT_EQ(taken(grammar(ToolFormat::xml, CallCount::one, tools), xml), xml + ".");
  EXPECT_EQ(read(ToolFormat::xml, xml)[0].second["at"], nlohmann::json({1, 2}));
  const std::string lfm =
      "<|tool_call_start|>[{\"name\": \"note\", \"arguments\": {\"at\": [1, 2]}}, {\"name\": \"stop\", \"arguments\": "
      "{}}]<|tool_call_end|>";
  EXPECT_EQ(taken(grammar(ToolFormat::lfm, CallCount::some, tools), lfm), lfm + ".");
  EXPECT_EQ(read(ToolFormat::lfm, lfm).size(), 2U);
}

TEST_F(ToolGrammarTest, WhiteSpaceAndDigitsEnd) {
  const CallableTool tools[] = {{"note", R"({"type": "object", "properties": {"n": {"type": "integer"}}})"}};
  EXPECT_EQ(taken(grammar(ToolFormat::llama, CallCount::one, tools), R"({"name": "note", "parameters": { "n)"),
            R"({"name": "note", "parameters": {)");
  const std::string start = R"({"name": "note", "parameters": {"n": )";
  const std::string number = start + std::string(100, '1');
  Grammar many = grammar(ToolFormat::llama, CallCount::one, tools);
  for (const TokenId id : tokenizer_->encode(start, ControlTokens::as_text, Beginning::omit)) {
    ASSERT_TRUE(many.accept(id));
  }
  const TokenId one = tokenizer_->encode("1", ControlTokens::as_text, Beginning::omit)[0];
  int digits = 0;
  for (auto next = allowed(many); std::ranges::find(next, one) != next.end() && digits < 100; next = allowed(many)) {
    ASSERT_TRUE(many.accept(one));
    ++digits;
  }
  EXPECT_GE(digits, 20);  // 2^64 has as many
  EXPECT_LT(digits, 40);
}

TEST_F(ToolGrammarTest, WhatCannotBeAskedIsSaid) {
  const auto message = [&](std::vector<CallableTool> tools, ToolFormat format = ToolFormat::hermes) {
    const auto lark = tool_grammar(tools, format, CallCount::one, *tokenizer_);
    return lark ? "none" : lark.error().message;
  };
  EXPECT_THAT(message(kTools, ToolFormat::none), HasSubstr("knows no way"));
  EXPECT_THAT(message({}), HasSubstr("no tool"));
  EXPECT_THAT(message({{"f", "[1]"}}), HasSubstr("tool f must be a JSON schema"));
  EXPECT_THAT(message({{"f", "{"}}), HasSubstr("tool f must be a JSON schema"));
  EXPECT_THAT(message({{"f", R"({"items":)" + std::string(100'000, '[')}}), HasSubstr("tool f"));
  // The compiler says no to what it could not keep.
  const std::vector<CallableTool> unique = {{"f", R"({"properties": {"a": {"type": "array", "uniqueItems": true}}})"}};
  const auto lark = tool_grammar(unique, ToolFormat::hermes, CallCount::one, *tokenizer_);
  ASSERT_TRUE(lark);
  const auto compiled = Grammar::from_lark(*lark, *vocabulary_);
  ASSERT_FALSE(compiled);
  EXPECT_THAT(compiled.error().message, HasSubstr("uniqueItems"));
}

}  // namespace
}  // namespace nanomind
