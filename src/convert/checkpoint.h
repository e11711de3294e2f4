// SPDX-License-Identifier: Apache-2.0
// A model as publishers lay it out: a folder with config.json, the tokenizer's files and safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "format/safetensors.h"

namespace nanomind {

// A settings file of a model. Required look-ups fail with a message that names file and key; a value of null counts as
// missing.
class Config {
 public:
  Config(Json json, std::string subject) : json_(std::move(json)), subject_(std::move(subject)) {}

  Result<int64_t> integer(const char* key) const;  // 0 or more
  Result<double> number(const char* key) const;
  int64_t integer_or(const char* key, int64_t fallback) const;
  double number_or(const char* key, double fallback) const;
  bool flag_or(const char* key, bool fallback) const;
  std::string text_or(const char* key, std::string_view fallback) const;
  std::vector<std::string> texts(const char* key) const;  // empty where there is no list
  std::vector<int64_t> integers(const char* key) const;   // also of a single number
  std::vector<double> numbers(const char* key) const;
  // Null when it is missing.
  const Json* find(const char* key) const;
  // The object under `key`, or an empty one.
  Config part(const char* key) const;
  // The settings over those of a JSON object in a program's text, whose values hold for keys that are missing.
  Config over(const char* defaults) const;
  const Json& json() const { return json_; }
  const std::string& subject() const { return subject_; }

 private:
  Json json_;
  std::string subject_;
};

struct Checkpoint {
  std::filesystem::path folder;
  std::string name;        // of the model, for people
  Config whole;            // config.json
  Config config;           // of the text model: the same, or its "text_config" with what is around it
  std::string model_type;  // of the text model
  SafetensorsModel weights;

  // Whether the text model is a part of another, and its settings are those that differ from its class.
  bool is_nested() const { return whole.find("text_config") != nullptr; }

  // `path`: the folder, or a .safetensors file or index in it.
  static Result<Checkpoint> open(const std::filesystem::path& path);
};

// A JSON file of the checkpoint; an empty object where it is not there.
Result<Config> read_optional_config(const std::filesystem::path& path);
Result<Config> read_config(const std::filesystem::path& path);
// A small text file; nothing where it is not there.
Result<std::optional<std::string>> read_optional_text(const std::filesystem::path& path);

}  // namespace nanomind
