// SPDX-License-Identifier: Apache-2.0
// Templates raise on orders of roles that agents produce; brought into the usual order, every one of them renders.
#include "text/message_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace nanomind {
namespace {

using testing::HasSubstr;

// One letter for a role: system, user, assistant. Contents are numbered.
std::vector<Message> conversation(std::string_view roles) {
  std::vector<Message> messages;
  for (const char role : roles) {
    messages.push_back({.role = role == 's'   ? "system"
                                : role == 'u' ? "user"
                                              : "assistant",
                        .content = "content" + std::to_string(messages.size()) + "."});
  }
  return messages;
}

std::string roles(std::span<const Message> messages) {
  std::string letters;
  for (const Message& message : messages) letters += message.role[0];
  return letters;
}

constexpr std::string_view kOrders[] = {"u",   "su",   "us",  "usu", "suu",  "uu",    "au",   "a",
                                        "uau", "uaau", "ssu", "s",   "suas", "uasau", "aauu", "sausua"};

TEST(MessageOrder, Tok07EveryOrderOfRolesRenders) {
  const std::string sources[] = {
      "alternating.jinja", "qwen2.5-coder.jinja", "smollm2.jinja",
      // As Gemma's and older ones of Mistral.
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
      "{{ m.role }}: {{ m.content }}\n{% endfor %}",
      // As Qwen3.5's.
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be "
      "at the beginning.') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"};
  for (const std::string& source : sources) {
    std::ifstream file("tests/data/chat_template/" + source);
    const auto parsed = ChatTemplate::parse(file ? std::string(std::istreambuf_iterator<char>(file), {}) : source);
    ASSERT_TRUE(parsed) << parsed.error().message;
    for (const std::string_view order : kOrders) {
      const auto messages = conversation(order);
      auto prompt = parsed->render(usual_order(messages, SystemPlace::first_message), {});
      if (!prompt) prompt = parsed->render(usual_order(messages, SystemPlace::first_question), {});
      ASSERT_TRUE(prompt) << order << ": " << prompt.error().message;
      for (const Message& message : messages) EXPECT_THAT(*prompt, HasSubstr(message.content)) << order;
    }
  }
}

TEST(MessageOrder, IsThatOfTurns) {
  EXPECT_EQ(roles(usual_order(conversation("usua"), SystemPlace::first_message)), "sua");
  EXPECT_EQ(roles(usual_order(conversation("usua"), SystemPlace::first_question)), "ua");
  const auto all = usual_order(conversation("usu"), SystemPlace::first_question);
  EXPECT_EQ(all[0].content, "content1.\n\ncontent0.\n\ncontent2.");
  EXPECT_EQ(roles(usual_order(conversation("a"), SystemPlace::first_message)), "ua");
  // A call and its result stay where they are.
  const Message call{.role = "assistant", .content = "", .tool_calls = "[]"};
  const std::vector<Message> calls = {{"user", "x"}, call, {"tool", "1"}, {"tool", "2"}, {"assistant", "y"}};
  EXPECT_EQ(roles(usual_order(calls, SystemPlace::first_message)), "uatta");
}

TEST(MessageOrder, PicturesStayWithTheirMessages) {
  const auto picture = [](std::string name) { return PicturePrompt{{.text = std::move(name), .rows = {}}}; };
  const auto shown = [](const Message& message) {
    std::string text;
    for (const PicturePrompt& each : message.pictures) text += each[0].text;
    return text + ":" + message.content;
  };
  std::vector<Message> messages = conversation("uusa");
  for (Message& message : messages) message.pictures = {picture(message.content.substr(7, 1))};
  const auto first = usual_order(messages, SystemPlace::first_message);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(shown(first[0]), "2:content2.");
  EXPECT_EQ(shown(first[1]), "01:content0.\n\ncontent1.");
  EXPECT_EQ(shown(first[2]), "3:content3.");
  const auto question = usual_order(messages, SystemPlace::first_question);
  ASSERT_EQ(question.size(), 2u);
  EXPECT_EQ(shown(question[0]), "201:content2.\n\ncontent0.\n\ncontent1.");
}

}  // namespace
}  // namespace nanomind
