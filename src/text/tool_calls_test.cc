// SPDX-License-Identifier: Apache-2.0
// Scripted answers of each family, in pieces of every size: the same text and calls each time.
#include "text/tool_calls.h"

#include <gtest/gtest.h>

#include <ostream>

#include "text/json_call.h"

namespace nanomind {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  bool complete = true;
  bool operator==(const Call&) const = default;
};

void PrintTo(const Call& call, std::ostream* out) {
  *out << call.name << ' ' << call.arguments << (call.complete ? "" : " cut");
}

struct Outcome {
  std::string text;
  std::vector<Call> calls;
};

Outcome in_pieces(const ToolCallOptions& options, std::string_view text, size_t size) {
  ToolCallParser parser(options);
  Outcome outcome;
  bool open = false;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const ToolEvent& event : events) {
      switch (event.kind) {
        case ToolEvent::Kind::text: outcome.text += event.text; break;
        case ToolEvent::Kind::call:
          EXPECT_FALSE(open);
          EXPECT_EQ(event.index, outcome.calls.size());
          outcome.calls.push_back({event.text, ""});
          open = true;
          break;
        case ToolEvent::Kind::arguments:
          EXPECT_TRUE(open);
          outcome.calls.back().arguments += event.text;
          break;
        case ToolEvent::Kind::end:
        case ToolEvent::Kind::cut:
          EXPECT_TRUE(open);
          open = false;
          outcome.calls.back().complete = event.kind == ToolEvent::Kind::end;
          break;
      }
    }
  };
  for (size_t i = 0; i < text.size(); i += size) take(parser.push(text.substr(i, size)));
  take(parser.finish());
  EXPECT_FALSE(open);
  return outcome;
}

void expect(ToolFormat format, std::string_view text, const std::string& rest, const std::vector<Call>& calls) {
  const ToolCallOptions options{.format = format,
                                .names = {"f", "get_weather"},
                                .takes_text = [](std::string_view, std::string_view key) { return key == "zip"; }};
  for (size_t size = 1; size <= text.size(); ++size) {
    const Outcome outcome = in_pieces(options, text, size);
    ASSERT_EQ(outcome.text, rest) << "in pieces of " << size;
    ASSERT_EQ(outcome.calls, calls) << "in pieces of " << size;
    for (const Call& call : outcome.calls) {
      if (call.complete) {
        EXPECT_TRUE(is_json(call.arguments)) << call.arguments;
      }
    }
  }
}

const Call kSeoul{"get_weather", R"({"city": "서울", "days": [1, 2]})"};

TEST(ToolCalls, Hermes) {
  expect(
      ToolFormat::hermes,
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"서울\", \"days\": [1, 2]}}\n</tool_call>",
      "", {kSeoul});
  expect(ToolFormat::hermes, "Let me look.\n\n<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>\nDone.",
         "Let me look.Done.", {{"f", "{}"}});
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f"}</tool_call>)", "", {{"f", "{}"}});
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)", "",
         {{"f", R"({"a": 1})"}});
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": {"a": "</tool_call> } \" {"}}</tool_call>)", "",
         {{"f", R"({"a": "</tool_call> } \" {"})"}});
}

// Each call once, in its order.
TEST(ToolCalls, Tool06ParallelCallsComeOnceEach) {
  expect(ToolFormat::hermes,
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", "
         "\"arguments\": {\"a\": 2}}\n</tool_call>",
         "", {{"f", R"({"a": 1})"}, {"f", R"({"a": 2})"}});
  expect(ToolFormat::hermes,
         R"(<tool_call>[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"a": 2}}]</tool_call>)", "",
         {{"f", "{}"}, {"f", R"({"a": 2})"}});
  expect(ToolFormat::llama, R"({"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}})", "",
         {{"f", R"({"a": 1})"}, {"f", "{}"}});
  expect(ToolFormat::lfm, "<|tool_call_start|>[f(a=1), f(b='x')]<|tool_call_end|>", "",
         {{"f", R"({"a": 1})"}, {"f", R"({"b": "x"})"}});
  expect(ToolFormat::mistral, R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f[ARGS]{"a": 2})", "",
         {{"f", R"({"a": 1})"}, {"f", R"({"a": 2})"}});
}

TEST(ToolCalls, Xml) {
  expect(ToolFormat::xml,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork "
         "\"NY\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=zip>\n10001\n</parameter>\n</"
         "function>\n</tool_call>",
         "", {{"get_weather", R"({"city": "New\nYork \"NY\"", "days": 3, "zip": "10001"})"}});
  expect(ToolFormat::xml, "Hm <tool_call><function=f></function></tool_call>", "Hm", {{"f", "{}"}});
  expect(ToolFormat::xml, "<tool_call><function=f><parameter=a>1</tool_call>",
         "<tool_call><function=f><parameter=a>1</tool_call>", {});
}

TEST(ToolCalls, Llama) {
  expect(ToolFormat::llama, "{\"name\": \"f\", \"parameters\": {\"a\": {\"b\": null}}}", "",
         {{"f", R"({"a": {"b": null}})"}});
  expect(ToolFormat::llama, "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "",
         {{"f", "{}"}});
  expect(ToolFormat::llama, "<|python_tag|>print(1)", "<|python_tag|>print(1)", {});
  expect(ToolFormat::llama, R"({"name": "unknown", "parameters": {}} is JSON)",
         R"({"name": "unknown", "parameters": {}} is JSON)", {});
}

TEST(ToolCalls, Gemma) {
  expect(ToolFormat::gemma, "Sure.\n```tool_code\nget_weather(city=\"서울\", days=[1, 2])\n```\n", "Sure.", {kSeoul});
  expect(ToolFormat::gemma, "```json\n{\"name\": \"f\", \"parameters\": {}}\n```", "", {{"f", "{}"}});
  expect(ToolFormat::gemma, "```json\n{\"some\": \"data\"}\n```", "```json\n{\"some\": \"data\"}\n```", {});
  expect(ToolFormat::gemma, "```python\nf(a=1)\n```", "```python\nf(a=1)\n```", {});
}

TEST(ToolCalls, Mistral) {
  expect(ToolFormat::mistral,
         R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "서울", "days": [1, 2]}, "id": "abc"}])", "",
         {kSeoul});
  expect(ToolFormat::mistral, "[TOOL_CALLS]f[CALL_ID]x1[ARGS]{}", "", {{"f", "{}"}});
  expect(ToolFormat::mistral, "[TOOL_CALLS] no such", "[TOOL_CALLS] no such", {});
}

TEST(ToolCalls, Lfm) {
  expect(ToolFormat::lfm, "<|tool_call_start|>[get_weather(city=\"서울\", days=[1, 2])]<|tool_call_end|>Wait.", "Wait.",
         {kSeoul});
  expect(ToolFormat::lfm,
         R"(<|tool_call_start|>[f(a=True, b=None, c={'k': (1.5, -2e3)}, d="it's \"q\"\n")]<|tool_call_end|>)", "",
         {{"f", R"({"a": true, "b": null, "c": {"k": [1.5, -2e3]}, "d": "it's \"q\"\n"})"}});
  expect(ToolFormat::lfm, R"(<|tool_call_start|>[f(a="\u00e9\ud83d\ude00\b\/", b='it\'s')]<|tool_call_end|>)", "",
         {{"f", "{\"a\": \"é😀\\u0008/\", \"b\": \"it's\"}"}});
  expect(ToolFormat::lfm, "<|tool_call_start|>[f(a=)]<|tool_call_end|>", "<|tool_call_start|>[f(a=)]<|tool_call_end|>",
         {});
}

TEST(ToolCalls, SmallModelsForgetTheMarkers) {
  expect(ToolFormat::hermes, R"({"name": "f", "arguments": {"a": 1}})", "", {{"f", R"({"a": 1})"}});
  expect(ToolFormat::hermes, "```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "", {{"f", "{}"}});
  expect(ToolFormat::hermes, R"({"name": "Ann", "age": 3})", R"({"name": "Ann", "age": 3})", {});
  expect(ToolFormat::hermes, R"(So {"name": "f", "arguments": {}})", R"(So {"name": "f", "arguments": {}})", {});
  // The last brace, or the closing marker.
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call> ok)", "ok",
         {{"f", R"({"a": 1})"}});
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": {"a": 1}})", "", {{"f", R"({"a": 1})"}});
}

TEST(ToolCalls, ACallThatIsCutSaysSo) {
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": {"a": "x)", "", {{"f", R"({"a": "x)", false}});
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>)", "",
         {{"f", R"({"a": 1)", false}});
  expect(ToolFormat::hermes, R"(<tool_call>{"name": "f", "ar)", R"(<tool_call>{"name": "f", "ar)", {});
}

TEST(ToolCalls, GarbageStaysText) {
  for (const std::string text :
       {"Plain text.", "<tool_call>", "<tool_call>nonsense</tool_call>", "a < b <tool", "<tool_call>{1}</tool_call> x",
        R"(<tool_call>{"name": 7}</tool_call>)", R"(<tool_call>{"name": "other", "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)", "  leading and trailing \n", "</tool_call>"}) {
    expect(ToolFormat::hermes, text, text, {});
  }
  expect(ToolFormat::none, R"(<tool_call>{"name": "f"}</tool_call>)", R"(<tool_call>{"name": "f"}</tool_call>)", {});
}

TEST(ToolCalls, ArgumentsComeInPieces) {
  ToolCallParser parser({.format = ToolFormat::hermes, .names = {}, .takes_text = {}});
  using Kind = ToolEvent::Kind;
  EXPECT_TRUE(parser.push("<tool_call>{\"name\": \"f\", \"argu").empty());
  EXPECT_EQ(parser.push("ments\": {\"a\""),
            (std::vector<ToolEvent>{{Kind::call, 0, "f"}, {Kind::arguments, 0, "{\"a\""}}));
  EXPECT_EQ(parser.push(": 1"), (std::vector<ToolEvent>{{Kind::arguments, 0, ": 1"}}));
  EXPECT_EQ(parser.push("}}</tool_call>"), (std::vector<ToolEvent>{{Kind::arguments, 0, "}"}, {Kind::end, 0, ""}}));
  EXPECT_TRUE(parser.finish().empty());
}

TEST(ToolCalls, Tool03DeepNestingIsText) {
  const std::string deep(100'000, '[');
  EXPECT_FALSE(is_json(deep));
  const auto hermes = in_pieces({.format = ToolFormat::hermes, .names = {}, .takes_text = {}},
                                R"(<tool_call>{"name": "f", "arguments": {"a": )" + deep, 1000);
  ASSERT_EQ(hermes.calls.size(), 1U);
  EXPECT_FALSE(hermes.calls[0].complete);
  EXPECT_TRUE(
      in_pieces({.format = ToolFormat::lfm, .names = {}, .takes_text = {}}, "<|tool_call_start|>[f(a=" + deep, 1000)
          .calls.empty());
}

TEST(ToolCalls, FormatsComeFromTheTemplate) {
  EXPECT_EQ(find_tool_format("{{ messages }}"), ToolFormat::none);
  EXPECT_EQ(find_tool_format("{% if tools %}<tool_call>"), ToolFormat::hermes);
  EXPECT_EQ(find_tool_format("{% if tools %}<tool_call><function=x><parameter=y>"), ToolFormat::xml);
  EXPECT_EQ(find_tool_format("{% if tools %}<|start_header_id|>"), ToolFormat::llama);
  EXPECT_EQ(find_tool_format("{% if tools %}<start_of_turn>"), ToolFormat::gemma);
  EXPECT_EQ(find_tool_format("{% if tools %}[AVAILABLE_TOOLS]"), ToolFormat::mistral);
  EXPECT_EQ(find_tool_format("{% if tools %}<|tool_list_start|>"), ToolFormat::lfm);
}

TEST(JsonText, StringsAndValues) {
  EXPECT_EQ(decode_json_string(R"("a\n\u00e9\ud83d\ude00\"")"), "a\n\u00e9\U0001F600\"");
  EXPECT_EQ(decode_json_string(R"("\ud83d")"), "\xef\xbf\xbd");
  EXPECT_FALSE(decode_json_string("\"a"));
  EXPECT_FALSE(decode_json_string(R"("\q")"));
  EXPECT_EQ(encode_json_string("a\"\\\n\x01"), R"("a\"\\\n\u0001")");
  for (const char* good : {"1", "-0.5e+3", "null", "[]", "{}", " [1, {\"a\": \"b\"}] "})
    EXPECT_TRUE(is_json(good)) << good;
  for (const char* bad : {"", "01", "1.", "[1,]", "{a: 1}", "nul", "\"", "1 2", "{\"a\"}"})
    EXPECT_FALSE(is_json(bad)) << bad;
}

}  // namespace
}  // namespace nanomind
