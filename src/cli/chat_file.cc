// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/mapped_file.h"

namespace nanomind {
namespace {

constexpr int kVersion = 1;

struct Reader {
  std::string_view origin;

  std::unexpected<Error> refuse(const std::string& why) const {
    return fail(
        ErrorCode::corrupt,
        fmt::format("{} is not a conversation that can be loaded: {}. Load a file that /save wrote.", origin, why));
  }

  Result<Message> message(const nlohmann::json& json, size_t index) const {
    for (const char* key : {"role", "content"}) {
      if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
        return refuse(fmt::format("message {} has no text \"{}\"", index + 1, key));
      }
    }
    return Message{.role = json["role"], .content = json["content"]};
  }
};

}  // namespace

std::vector<Message> Conversation::messages() const {
  std::vector<Message> all;
  if (!system.empty()) all.push_back({.role = "system", .content = system});
  all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

std::string to_json(const Conversation& conversation) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const Message& message : conversation.messages()) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  const nlohmann::ordered_json json = {
      {"nanomind_chat", kVersion}, {"model", conversation.model}, {"messages", messages}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<Conversation> parse_conversation(std::string_view text, std::string_view origin) {
  const Reader reader{origin};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return reader.refuse("it is not a JSON object");
  if (!json.contains("nanomind_chat")) return reader.refuse("\"nanomind_chat\" is missing");
  if (json["nanomind_chat"] != kVersion) return reader.refuse("it was written by another version of nanomind");
  if (!json.contains("messages") || !json["messages"].is_array()) return reader.refuse("\"messages\" is no list");
  Conversation conversation;
  if (json.contains("model") && json["model"].is_string()) conversation.model = json["model"];
  size_t index = 0;
  for (const nlohmann::json& entry : json["messages"]) {
    Message message = TRY(reader.message(entry, index));
    const bool is_system = index == 0 && message.role == "system";
    const char* expected = conversation.turns.size() % 2 == 0 ? "user" : "assistant";
    if (!is_system && message.role != expected) {
      return reader.refuse(
          fmt::format("message {} is by \"{}\" where \"{}\" should speak", index + 1, message.role, expected));
    }
    if (is_system) {
      conversation.system = std::move(message.content);
    } else {
      conversation.turns.push_back(std::move(message));
    }
    ++index;
  }
  if (conversation.turns.size() % 2 != 0) return reader.refuse("the last question has no answer");
  return conversation;
}

Result<void> save_conversation(const Conversation& conversation, const std::filesystem::path& path) {
  const std::string json = to_json(conversation);
  AtomicFile file = TRY(AtomicFile::create(path));
  TRY(file.write_at(0, std::as_bytes(std::span(json))));
  return file.commit();
}

Result<Conversation> load_conversation(const std::filesystem::path& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  const auto bytes = file.bytes();
  return parse_conversation({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace nanomind
