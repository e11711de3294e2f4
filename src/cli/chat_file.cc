// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_file.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/base64.h"
#include "base/mapped_file.h"

namespace nanomind {
namespace {

constexpr int kVersion = 1;
constexpr const char *kMostTiles = "most_tiles", *kSeveral = "several";

struct Reader {
  std::string_view origin;

  std::unexpected<Error> refuse(const std::string& why) const {
    return fail(
        ErrorCode::corrupt,
        fmt::format("{} is not a conversation that can be loaded: {}. Load a file that /save wrote.", origin, why));
  }

  Result<Turn> turn(const nlohmann::json& json, size_t index) const {
    for (const char* key : {"role", "content"}) {
      if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
        return refuse(fmt::format("message {} has no text \"{}\"", index + 1, key));
      }
    }
    Turn turn{.message = {.role = json["role"], .content = json["content"]}};
    if (!json.contains("pictures")) return turn;
    const std::string why = fmt::format("the pictures of message {} are damaged", index + 1);
    if (turn.message.role != "user" || !json["pictures"].is_array()) return refuse(why);
    for (const nlohmann::json& entry : json["pictures"]) {
      auto kept = picture(entry);
      if (!kept) return refuse(why);
      turn.pictures.push_back(std::move(*kept));
    }
    return turn;
  }

  static std::optional<KeptPicture> picture(const nlohmann::json& json) {
    if (!json.is_object() || !json.contains("base64") || !json["base64"].is_string()) return std::nullopt;
    auto file = base64_bytes(json["base64"].get_ref<const std::string&>());
    if (!file) return std::nullopt;
    KeptPicture picture{.file = std::move(*file), .detail = {}};
    if (json.contains(kMostTiles)) {
      if (!json[kMostTiles].is_number_unsigned() || json[kMostTiles] > std::numeric_limits<int>::max())
        return std::nullopt;
      picture.detail.most_tiles = json[kMostTiles].get<int>();
    }
    if (json.value(kSeveral, nlohmann::json(false)) == true) picture.detail.company = PictureDetail::Company::several;
    return picture;
  }
};

nlohmann::ordered_json picture_json(const KeptPicture& picture) {
  nlohmann::ordered_json json{{"base64", base64(picture.file)}};
  if (picture.detail.most_tiles) json[kMostTiles] = *picture.detail.most_tiles;
  if (picture.detail.company == PictureDetail::Company::several) json[kSeveral] = true;
  return json;
}

nlohmann::ordered_json turn_json(const Turn& turn) {
  nlohmann::ordered_json json{{"role", turn.message.role}, {"content", turn.message.content}};
  for (const KeptPicture& picture : turn.pictures) json["pictures"].push_back(picture_json(picture));
  return json;
}

}  // namespace

std::vector<Message> Conversation::messages() const {
  std::vector<Message> all;
  if (!system.empty()) all.push_back({.role = "system", .content = system});
  for (const Turn& turn : turns) all.push_back(turn.message);
  return all;
}

std::string to_json(const Conversation& conversation) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!conversation.system.empty()) messages.push_back({{"role", "system"}, {"content", conversation.system}});
  for (const Turn& turn : conversation.turns) messages.push_back(turn_json(turn));
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
    Turn turn = TRY(reader.turn(entry, index));
    const Message& message = turn.message;
    const bool is_system = index == 0 && message.role == "system";
    const char* expected = conversation.turns.size() % 2 == 0 ? "user" : "assistant";
    if (!is_system && message.role != expected) {
      return reader.refuse(
          fmt::format("message {} is by \"{}\" where \"{}\" should speak", index + 1, message.role, expected));
    }
    if (is_system) {
      conversation.system = message.content;
    } else {
      conversation.turns.push_back(std::move(turn));
    }
    ++index;
  }
  if (conversation.turns.size() % 2 != 0) return reader.refuse("the last question has no answer");
  return conversation;
}

Result<void> save_conversation(const Conversation& conversation, const std::filesystem::path& path) {
  const std::string json = to_json(conversation);
  AtomicFile file = TRY(AtomicFile::create(path, AtomicFile::Readers::owner));
  TRY(file.write_at(0, std::as_bytes(std::span(json))));
  return file.commit();
}

Result<Conversation> load_conversation(const std::filesystem::path& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  const auto bytes = file.bytes();
  return parse_conversation({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace nanomind
