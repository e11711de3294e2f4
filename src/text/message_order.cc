// SPDX-License-Identifier: Apache-2.0
#include "text/message_order.h"

#include <algorithm>
#include <string>

namespace nanomind {
namespace {

void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

void append(Message& message, const Message& more) {
  append(message.content, more.content);
  append(message.reasoning, more.reasoning);
  message.pictures.insert(message.pictures.end(), more.pictures.begin(), more.pictures.end());
}

bool is_system(const Message& message) { return message.role == "system" || message.role == "developer"; }

bool can_join(const Message& first, const Message& second) {
  const auto plain = [](const Message& message) {
    return (message.role == "user" || message.role == "assistant") && message.tool_calls.empty();
  };
  return first.role == second.role && plain(first) && plain(second);
}

}  // namespace

std::vector<Message> usual_order(std::span<const Message> messages, SystemPlace place) {
  std::vector<Message> turns;
  Message system{.role = "system", .content = {}};
  for (const Message& message : messages) {
    if (is_system(message)) {
      append(system, message);
    } else if (!turns.empty() && can_join(turns.back(), message)) {
      append(turns.back(), message);
    } else {
      turns.push_back(message);
    }
  }
  if (turns.empty() || turns.front().role != "user") turns.insert(turns.begin(), {.role = "user", .content = {}});
  if (system.content.empty() && system.pictures.empty()) return turns;
  if (place == SystemPlace::first_message) {
    turns.insert(turns.begin(), std::move(system));
  } else {
    append(system, turns.front());
    turns.front().content = std::move(system.content);
    turns.front().pictures = std::move(system.pictures);
  }
  return turns;
}

Result<std::string> render_in_any_order(const ChatTemplate& chat_template, std::span<const Message> messages,
                                        const TemplateOptions& options) {
  auto prompt = chat_template.render(messages, options);
  for (const SystemPlace place : {SystemPlace::first_message, SystemPlace::first_question}) {
    if (prompt || prompt.error().code != ErrorCode::invalid_argument) break;
    if (auto again = chat_template.render(usual_order(messages, place), options)) return again;
  }
  return prompt;
}

}  // namespace nanomind
