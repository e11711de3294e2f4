// SPDX-License-Identifier: Apache-2.0
#include "convert/checkpoint.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <system_error>

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 256 << 20;  // of a JSON file; the largest tokenizers have some 35 MB

std::unexpected<Error> missing(const std::string& subject, const char* key, std::string_view kind) {
  return fail(ErrorCode::corrupt, fmt::format("{} has no {} \"{}\".", subject, kind, key));
}

// What is said about the text half of a model that sees or hears: its own part, then what is around it.
Config text_half(const Config& whole) {
  const Json* text = whole.find("text_config");
  if (text == nullptr || !text->is_object()) return whole;
  Json merged = whole.json();
  merged.update(*text);
  return {std::move(merged), whole.subject()};
}

}  // namespace

const Json* Config::find(const char* key) const {
  const Json* value = json_member(json_, key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

Result<int64_t> Config::integer(const char* key) const {
  const auto value = json_count(json_, key);
  if (!value || *value > uint64_t{1} << 48) return missing(subject_, key, "whole number");
  return static_cast<int64_t>(*value);
}

Result<double> Config::number(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr || !value->is_number()) return missing(subject_, key, "number");
  return value->get<double>();
}

int64_t Config::integer_or(const char* key, int64_t fallback) const { return integer(key).value_or(fallback); }
double Config::number_or(const char* key, double fallback) const { return number(key).value_or(fallback); }

bool Config::flag_or(const char* key, bool fallback) const {
  const Json* value = find(key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

std::string Config::text_or(const char* key, std::string_view fallback) const {
  return json_text(json_, key).value_or(std::string(fallback));
}

std::vector<std::string> Config::texts(const char* key) const {
  std::vector<std::string> out;
  const Json* list = find(key);
  if (list == nullptr || !list->is_array()) return out;
  for (const Json& item : *list) {
    if (item.is_string()) out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<int64_t> Config::integers(const char* key) const {
  std::vector<int64_t> out;
  const Json* value = find(key);
  if (value == nullptr) return out;
  if (value->is_number_integer()) return {value->get<int64_t>()};
  if (!value->is_array()) return out;
  for (const Json& item : *value) {
    if (item.is_number_integer()) out.push_back(item.get<int64_t>());
  }
  return out;
}

std::vector<double> Config::numbers(const char* key) const {
  std::vector<double> out;
  const Json* list = find(key);
  if (list == nullptr || !list->is_array()) return out;
  for (const Json& item : *list) {
    if (item.is_number()) out.push_back(item.get<double>());
  }
  return out;
}

Config Config::part(const char* key) const {
  const Json* value = find(key);
  return {value != nullptr && value->is_object() ? *value : Json::object(), fmt::format("{}, \"{}\"", subject_, key)};
}

Config Config::over(const char* defaults) const {
  auto merged = parse_json(defaults);
  CHECK(merged && merged->is_object());
  merged->update(json_);
  return {*std::move(merged), subject_};
}

Result<std::optional<std::string>> read_optional_text(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  if (fs::file_size(path, error) > kMostBytes || error)
    return fail(ErrorCode::corrupt, fmt::format("{} is not a file of a sensible size.", path.string()));
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream && !text.view().empty()) return fail(ErrorCode::io, fmt::format("{} cannot be read.", path.string()));
  return std::move(text).str();
}

Result<Config> read_config(const fs::path& path) {
  const auto text = TRY(read_optional_text(path));
  if (!text) {
    return fail(ErrorCode::not_found,
                fmt::format("There is no {}. To convert, give the folder with all files that the publisher has beside "
                            "the safetensors.",
                            path.string()));
  }
  auto json = parse_json(*text);
  if (!json || !json->is_object()) return fail(ErrorCode::corrupt, fmt::format("{} is no JSON object.", path.string()));
  return Config(*std::move(json), path.string());
}

Result<Config> read_optional_config(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return Config(Json::object(), path.string());
  return read_config(path);
}

Result<Checkpoint> Checkpoint::open(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return fail(ErrorCode::not_found, fmt::format("There is no {}.", path.string()));
  const fs::path folder = fs::is_directory(path, error) ? path : path.parent_path();
  const Config whole = TRY(read_config(folder / "config.json"));
  const Config config = text_half(whole);
  fs::path named = fs::absolute(folder, error).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  return Checkpoint{.folder = folder,
                    .name = named.filename().string(),
                    .whole = whole,
                    .config = config,
                    .model_type = config.text_or("model_type", ""),
                    .weights = TRY(SafetensorsModel::open(path))};
}

}  // namespace nanomind
