// SPDX-License-Identifier: Apache-2.0
// Expected prompts were rendered by Jinja2 (tools/golden/chat_templates.py) from templates of models and from one that
// uses what templates use of Python.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/test_data.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

const std::string kFolder = "tests/data/chat_template/";

struct Conversation {
  std::string name;
  std::vector<Message> messages;
};

std::vector<Conversation> read_conversations() {
  std::vector<Conversation> conversations;
  for (const std::string& line : read_lines(kFolder + "conversations.txt")) {
    if (line.starts_with("# ")) {
      conversations.push_back({line.substr(2), {}});
    } else if (const size_t colon = line.find(": "); colon != std::string::npos) {
      conversations.back().messages.push_back({line.substr(0, colon), unescape(line.substr(colon + 2))});
    }
  }
  return conversations;
}

ChatTemplate parse(std::string_view source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return *std::move(parsed);
}

// The rendered text, or "error: " and the message.
std::string render(const ChatTemplate& chat_template, std::span<const Message> messages) {
  const auto prompt = chat_template.render(messages, {.bos_token = "<bos>", .eos_token = "<eos>"});
  return prompt ? *prompt : "error: " + prompt.error().message;
}

std::string render(std::string_view source, std::vector<Message> messages = {{"user", "Hello"}}) {
  return render(parse(source), messages);
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, PromptsAreThoseOfJinja2) {
  std::ifstream file(kFolder + GetParam() + ".jinja");
  const auto chat_template = parse(std::string(std::istreambuf_iterator<char>(file), {}));
  const auto expected = read_lines(kFolder + GetParam() + ".expected");
  const auto conversations = read_conversations();
  ASSERT_EQ(expected.size(), conversations.size() * 2);
  ASSERT_GE(conversations.size(), 15u);
  for (size_t i = 0; i < conversations.size(); ++i) {
    ASSERT_EQ(expected[i * 2], "# " + conversations[i].name);
    const std::string& prompt = expected[i * 2 + 1];
    const std::string got = render(chat_template, conversations[i].messages);
    if (prompt.starts_with("! ")) {
      EXPECT_TRUE(got.starts_with("error: ")) << conversations[i].name;
      EXPECT_THAT(got, HasSubstr(prompt.substr(2)));
    } else {
      EXPECT_EQ(got, unescape(prompt)) << conversations[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, Golden,
                         testing::Values("smollm2", "qwen2.5-coder", "python_methods", "alternating"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

TEST(ChatTemplate, OpeningOfTheAssistantIsOptional) {
  const auto chat_template = parse("{% if add_generation_prompt %}yes{% else %}no{% endif %}");
  EXPECT_EQ(*chat_template.render({}, {}), "yes");
  EXPECT_EQ(*chat_template.render({}, {.bos_token = "", .eos_token = "", .prompt = TemplateOptions::Prompt::none}),
            "no");
}

TEST(ChatTemplate, ErrorsQuoteTheLine) {
  const auto parsed = ChatTemplate::parse("{{ bos_token }}\n{% for x in %}\n");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::unsupported);
  EXPECT_THAT(parsed.error().message, HasSubstr("Line 2: {% for x in %}"));
  EXPECT_THAT(render("a\n{{ raise_exception('No, thanks') }}"), HasSubstr("No, thanks. Line 2: {{ raise_exception"));
  EXPECT_THAT(render("{{ messages[7].content }}"), HasSubstr("error: The chat template failed"));
}

TEST(ChatTemplate, ContentThatIsNotUtf8NamesTheMessage) {
  EXPECT_THAT(render("{{ messages[0].content }}", {{"user", "ok"}, {"user", "a\xff"}}),
              HasSubstr("The content of message 1 is not valid UTF-8 at byte 1"));
  EXPECT_FALSE(ChatTemplate::parse("\xc3"));
}

TEST(ChatTemplate, NulStays) {
  const std::string content("BANANA\0APPLE", 12);
  EXPECT_EQ(render("{{ messages[0].content }}", {{"user", content}}), content);
}

TEST(ChatTemplate, StrftimeNowGivesTheDate) {
  EXPECT_THAT(render("{{ strftime_now('%Y-%m-%d') }}"), testing::MatchesRegex("20[0-9]+-[0-9]+-[0-9]+"));
  EXPECT_EQ(render("{{ strftime_now('') }}"), "");
  EXPECT_THAT(render("{{ strftime_now('%99999d') }}"), HasSubstr("error: "));
}

TEST(ChatTemplate, ToolsCallsAndResultsAreThoseOfJinja2) {
  std::ifstream chat_file(kFolder + "tools.json");
  const auto chat = nlohmann::ordered_json::parse(chat_file);
  std::vector<Message> messages;
  for (const auto& message : chat["messages"]) {
    messages.push_back({.role = message["role"],
                        .content = message["content"],
                        .tool_calls = message.contains("tool_calls") ? message["tool_calls"].dump() : ""});
  }
  const std::string tools = chat["tools"].dump();
  for (const std::string name : {"qwen2.5-coder", "python_methods"}) {
    std::ifstream file(kFolder + name + ".jinja");
    const auto prompt = parse(std::string(std::istreambuf_iterator<char>(file), {}))
                            .render(messages, {.bos_token = "<bos>", .eos_token = "<eos>", .tools = tools});
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_EQ(*prompt, unescape(read_lines(kFolder + name + ".tools").at(0))) << name;
  }
}

TEST(ChatTemplate, ToolsAreGivenInTheirOrder) {
  const auto chat_template = parse("{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{{ tools is none }}");
  const auto rendered = [&](std::string_view tools) {
    const auto text = chat_template.render({}, {.tools = tools});
    return text ? *text : "error: " + text.error().message;
  };
  const std::string tool =
      R"({"type": "function", "function": {"name": "f", "description": "x", "aaa": {"z": 1, "a": 2}}})";
  EXPECT_EQ(rendered("[" + tool + "]"), tool + "\nFalse");
  EXPECT_EQ(rendered(R"([{"name": "f", "description": "x", "aaa": {"z": 1, "a": 2}}])"), tool + "\nFalse");
  EXPECT_EQ(rendered(""), "True");
  EXPECT_EQ(rendered("[]"), "True");
  EXPECT_THAT(rendered("{}"), HasSubstr("error: The tools must be a JSON list"));
  EXPECT_THAT(rendered("["), HasSubstr("error: The tools are not valid JSON"));
  EXPECT_THAT(rendered("[{}]"), HasSubstr("error: Tool 1 has no name"));
}

TEST(ChatTemplate, CallsAndResultsAreGiven) {
  const std::string source =
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
      "[{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{% endif %}"
      "{% if m.tool_call_id is defined %}({{ m.tool_call_id }} {{ m.name }}){% endif %}{% endfor %}";
  const std::vector<Message> messages = {
      {.role = "assistant",
       .content = "",
       .tool_calls = R"([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},)"
                     R"({"name": "g", "arguments": {"b": 2}}])"},
      {.role = "tool", .content = "7", .tool_call_id = "c1", .name = "f"}};
  EXPECT_EQ(render(parse(source), messages), R"(assistant:[c1 f {"a": 1}][ g {"b": 2}]tool:7(c1 f))");
}

// Conversations with pictures, in templates whose contents are lists of parts.
struct PartsCase {
  std::string name;
  ContentForm form;
};
class Parts : public testing::TestWithParam<PartsCase> {};

TEST_P(Parts, PromptsAreThoseOfJinja2) {
  std::ifstream chats_file(kFolder + "parts/conversations.json");
  const auto chats = nlohmann::json::parse(chats_file);
  std::ifstream file(kFolder + "parts/" + GetParam().name + ".jinja");
  const auto chat_template = parse(std::string(std::istreambuf_iterator<char>(file), {}));
  EXPECT_EQ(chat_template.content_form(), GetParam().form);
  const auto expected = read_lines(kFolder + "parts/" + GetParam().name + ".expected");
  ASSERT_EQ(expected.size(), chats.size());
  for (size_t i = 0; i < chats.size(); ++i) {
    std::vector<Message> messages;
    for (const auto& message : chats[i]) {
      messages.push_back({.role = message["role"],
                          .content = message["content"],
                          .pictures = std::vector<PicturePrompt>(message.value("pictures", size_t{0}))});
    }
    EXPECT_EQ(render(chat_template, messages), unescape(expected[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, Parts,
                         testing::Values(PartsCase{"smolvlm", ContentForm::parts},
                                         PartsCase{"listed", ContentForm::parts},
                                         PartsCase{"numbered", ContentForm::either},
                                         PartsCase{"trimmed", ContentForm::either}),
                         [](const auto& instance) { return instance.param.name; });

TEST(ChatTemplate, ItsFormOfContentsIsLearnedByTrying) {
  const auto form = [](std::string_view source) { return parse(source).content_form(); };
  for (const std::string name : {"smollm2", "qwen2.5-coder", "python_methods", "alternating"}) {
    std::ifstream file(kFolder + name + ".jinja");
    EXPECT_EQ(form(std::string(std::istreambuf_iterator<char>(file), {})), ContentForm::text) << name;
  }
  // Some print a list as it is, some fail at it, some print nothing of whatever they are given.
  EXPECT_EQ(form("{{ messages[0].content }}"), ContentForm::text);
  EXPECT_EQ(form("{{ messages[0].content | tojson }}"), ContentForm::text);
  EXPECT_EQ(form("{{ messages[0].content + '!' }}"), ContentForm::text);
  EXPECT_EQ(form("{{ raise_exception('no') }}"), ContentForm::text);
  EXPECT_EQ(form("{% for part in messages[0].content %}{{ part.text }}{% endfor %}"), ContentForm::parts);
  // Where contents are texts, pictures are not seen.
  const Message picture{.role = "user", .content = "a", .pictures = {{}, {}}};
  EXPECT_EQ(render(parse("{{ messages[0].content }}"), std::vector{picture}), "a");
}

// What a model wrote wrongly must not make the conversation impossible to go on with.
TEST(ChatTemplate, Tool01BrokenArgumentsOfACallArePassedOn) {
  const auto shown = [](const std::string& arguments) {
    const std::string calls = R"([{"function": {"name": "f", "arguments": )" + arguments + "}}]";
    return render(parse("{{ messages[0].tool_calls[0].function.arguments | tojson }}"),
                  std::vector<Message>{{.role = "assistant", .content = "", .tool_calls = calls}});
  };
  EXPECT_EQ(shown(R"("{")"), R"("{")");
  EXPECT_EQ(shown(R"("")"), "{}");
  EXPECT_EQ(shown("null"), "{}");
  EXPECT_EQ(shown(R"({"a": [1]})"), R"({"a": [1]})");
  EXPECT_EQ(shown(R"("{\"a\": [1]}")"), R"({"a": [1]})");
  EXPECT_EQ(shown("\"" + std::string(1 << 20, 'x') + "\"").size(), (1U << 20) + 2);
}

TEST(ChatTemplate, WrongListsOfCallsNameTheMessage) {
  const auto shown = [](const std::string& calls) {
    return render(parse("x"), std::vector<Message>{{.role = "assistant", .content = "", .tool_calls = calls}});
  };
  EXPECT_THAT(shown("["), HasSubstr("The tool calls of message 0 are not valid JSON"));
  EXPECT_THAT(shown("{}"), HasSubstr("must be a JSON list"));
  EXPECT_THAT(shown("[{}]"), HasSubstr("A tool call of message 0 has no name"));
  EXPECT_THAT(shown(std::string(100'000, '[')), HasSubstr("error: "));
  EXPECT_EQ(shown("[]"), "x");
}

TEST(ChatTemplate, ThinkingIsTheTemplatesChoiceUnlessSaid) {
  const auto chat_template = parse("{{ enable_thinking is defined }} {{ enable_thinking }}");
  EXPECT_EQ(*chat_template.render({}, {}), "False ");
  EXPECT_EQ(*chat_template.render({}, {.thinking = false}), "True False");
  EXPECT_EQ(*chat_template.render({}, {.thinking = true}), "True True");
}

TEST(ChatTemplate, LongConversationsRender) {
  std::ifstream file(kFolder + "qwen2.5-coder.jinja");
  const auto chat_template = parse(std::string(std::istreambuf_iterator<char>(file), {}));
  std::vector<Message> messages(5000, {"user", std::string(2000, 'x')});
  EXPECT_GT(render(chat_template, messages).size(), 10'000'000u);
  // NOLINTNEXTLINE(bugprone-string-constructor): longer than a prompt may be
  messages.assign(2, {"user", std::string(20'000'000, 'x')});
  EXPECT_GT(render(chat_template, messages).size(), 40'000'000u);
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Templates come from files of strangers: each of these ends with an error, soon, without much memory.
TEST(ChatTemplate, Tok09HostileTemplatesAreStopped) {
  const std::string hostile[] = {
      "{% for i in range(10**9) %}x{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% "
      "endfor %}",
      "{{ 'x' * 10**9 }}",
      "{{ ('x' * 10**6) * 10**6 }}",
      "{{ [0] * 10**9 }}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x "
      "}}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x "
      "}}",
      "{% set ns = namespace(x='a,a') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', 'a,a,a,a') %}{% endfor "
      "%}",
      "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x | replace('a', 'aaaa') %}{% endfor %}",
      "{% set ns = namespace(x='a' * 1000000) %}{% for i in range(100000) %}{% set y = ns.x.strip() %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
      "tojson }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ 2 ** (10 ** 9) }}",
      "{{ range(10**9) | list | length }}",
      "{{ range(10**15) | sum }}",
      "{{ 'x' | center(10**9) }}",
      "{{ '%999999999d' | format(1) }}",
      "{{ 'a' | indent(10**9) }}{{ 'a\na' | indent(10**9) }}",
      "{% set x = 'a' %}" + repeat("{% set x = x ~ x %}", 60),
      "{% include 'chat_template' %}",
      "{% import 'chat_template' as m %}",
      "{% extends 'chat_template' %}",
  };
  for (const std::string& source : hostile) {
    const auto parsed = ChatTemplate::parse(source);
    if (!parsed) continue;
    const std::string got = render(*parsed, std::vector<Message>{{"user", "Hello"}});
    EXPECT_TRUE(got.starts_with("error: ")) << source << " gives " << got.size() << " bytes";
  }
}

TEST(ChatTemplate, Tok09DeepTemplatesAreErrorsOrRender) {
  const std::string deep[] = {
      "{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}",
      "{{ " + std::string(100'000, '[') + std::string(100'000, ']') + " }}",
      "{{ " + repeat("not ", 100'000) + "1 }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
      repeat("{% if 1 %}", 40'000) + repeat("{% endif %}", 40'000),
      repeat("{% for i in [1] %}", 20'000) + repeat("{% endfor %}", 20'000),
      "{{ 1" + repeat("+1", 200'000) + " }}",
      "{{ x" + repeat(".a", 200'000) + " }}",
      "{{ x" + repeat("|trim", 80'000) + " }}",
      "{{ 1" + repeat(" if 1 else 1", 30'000) + " }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(300000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60000) %}{% set ns.x = [ns.x] %}{% endfor %}ok",
      "{% set ns = namespace(x=[]) %}{% for i in range(60000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x == "
      "ns.x }}",
      "{% set ns = namespace(x=[],y=[]) %}{% for i in range(40000) %}{% set ns.x=[ns.x] %}{% set ns.y=[ns.y] %}{% "
      "endfor %}"
      "{{ ns.x == ns.y }}{{ ns.x < ns.y }}",
  };
  for (const std::string& source : deep) {
    const auto parsed = ChatTemplate::parse(source);
    if (!parsed) continue;
    EXPECT_LT(render(*parsed, {}).size(), 20'000'000u);
  }
}

TEST(ChatTemplate, SourceIsBounded) {
  EXPECT_THAT(ChatTemplate::parse(std::string(600'000, 'x')).error().message, HasSubstr("600000 bytes"));
}

}  // namespace
}  // namespace nanomind
