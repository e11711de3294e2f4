// SPDX-License-Identifier: Apache-2.0
// Reading JSON without exceptions: a value that is missing or has another type is simply absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace nanomind {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // members keep their order

// Nothing for text that is not JSON; // comments are allowed.
inline std::optional<Json> parse_json(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

inline const Json* json_member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

inline std::optional<std::string> json_text(const Json& object, const char* key) {
  const Json* value = json_member(object, key);
  if (!value || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

inline std::optional<uint64_t> json_count(const Json& object, const char* key) {
  const Json* value = json_member(object, key);
  if (!value || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}

inline std::optional<int64_t> json_integer(const Json& object, const char* key) {
  const Json* value = json_member(object, key);
  if (!value || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// Bytes that are no UTF-8 are replaced rather than thrown about.
inline std::string json_dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nanomind
