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
  std::string system;
  for (const Message& message : messages) {
    if (is_system(message)) {
      append(system, message.content);
    } else if (!turns.empty() && can_join(turns.back(), message)) {
      append(turns.back().content, message.content);
      append(turns.back().reasoning, message.reasoning);
    } else {
      turns.push_back(message);
    }
  }
  if (turns.empty() || turns.front().role != "user") turns.insert(turns.begin(), {.role = "user", .content = {}});
  if (system.empty()) return turns;
  if (place == SystemPlace::first_message) {
    turns.insert(turns.begin(), {.role = "system", .content = std::move(system)});
  } else {
    append(system, turns.front().content);
    turns.front().content = std::move(system);
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
