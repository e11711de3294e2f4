// SPDX-License-Identifier: Apache-2.0
// Reads calls of tools that are written as JSON objects, {"name": "f", "arguments": {...}}, character by character, so
// that arguments can be handed on while they come. For tool_calls.cc.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace nanomind {

// The text of a JSON string, quotes included; null when it is none.
std::optional<std::string> decode_json_string(std::string_view quoted);
std::string encode_json_string(std::string_view text);
// Whether `text` is one JSON value; nesting is bounded.
bool is_json(std::string_view text);

class JsonCallReader {
 public:
  struct Sink {
    std::function<void(std::string name)> begin;
    std::function<void(std::string piece)> arguments;
  };
  // `known` says which names are taken.
  JsonCallReader(std::function<bool(std::string_view)> known, Sink sink);
  // A reader for the arguments alone, of a call whose name is known already and begun.
  static JsonCallReader of_arguments(Sink sink);

  enum class State {
    reading,
    done,    // the object is complete
    failed,  // this is no call
  };
  // Takes one character. After `done` and `failed` none may come.
  State push(char c);
  // Hands on what was collected of the arguments.
  void flush();
  // Hands on what came so far and says whether the arguments are complete, though the object is not.
  bool end_early();
  bool begun() const { return begun_; }

 private:
  enum class Place { start, key_or_end, key, colon, value_start, value, comma_or_end };
  enum class Field { name, arguments, other };

  State push_value(char c);
  State end_value();
  State end_object();
  void begin();

  std::function<bool(std::string_view)> known_;
  Sink sink_;
  Place place_ = Place::start;
  Field field_ = Field::other;
  std::string token_;  // the key or value that is being read; of arguments what is not handed on yet
  std::string name_;
  bool streaming_ = false;  // the arguments' value goes out as it comes
  bool has_arguments_ = false;
  bool alone_ = false;  // the arguments are all there is
  bool begun_ = false;
  std::string waiting_;  // arguments that came before the name, or are written as a text
  // Within a value:
  int depth_ = 0;
  char first_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace nanomind
