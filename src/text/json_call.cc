// SPDX-License-Identifier: Apache-2.0
#include "text/json_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/character_set.h"

namespace nanomind {
namespace {

constexpr int kMostLevels = 200;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Steps through one JSON value.
class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}
  bool whole() { return value(0) && (skip_space(), at_ == text_.size()); }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) { return at_ < text_.size() && text_[at_] == c ? (++at_, true) : false; }
  bool word(std::string_view expected) {
    return text_.substr(at_).starts_with(expected) ? (at_ += expected.size(), true) : false;
  }
  bool digits() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > start;
  }
  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!take('e') && !take('E')) return true;
    if (!take('+')) take('-');
    return digits();
  }
  bool string() {
    const size_t start = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    return take('"') && decode_json_string(text_.substr(start, at_ - start));
  }
  bool members(char close, bool named, int level) {
    ++at_;
    skip_space();
    if (take(close)) return true;
    do {
      skip_space();
      if (named) {
        if (at_ >= text_.size() || text_[at_] != '"' || !string()) return false;
        skip_space();
        if (!take(':')) return false;
      }
      if (!value(level + 1)) return false;
      skip_space();
    } while (take(','));
    return take(close);
  }
  bool value(int level) {
    skip_space();
    if (at_ >= text_.size() || level > kMostLevels) return false;
    switch (text_[at_]) {
      case '{': return members('}', true, level);
      case '[': return members(']', false, level);
      case '"': return string();
      default: return word("true") || word("false") || word("null") || number();
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<uint32_t> hex4(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  uint32_t value = 0;
  for (const char c : text.substr(0, 4)) {
    const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

// The character after \u in text; `used` grows by what it took. Half a pair is no character.
std::optional<uint32_t> escaped_character(std::string_view text, size_t& used) {
  const auto high = hex4(text);
  if (!high) return std::nullopt;
  used += 4;
  if (*high < 0xD800 || *high >= 0xE000) return high;
  if (*high >= 0xDC00 || text.substr(4, 2) != "\\u") return 0xFFFD;
  const auto low = hex4(text.substr(6));
  if (!low || *low < 0xDC00 || *low >= 0xE000) return 0xFFFD;
  used += 6;
  return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
}

}  // namespace

std::optional<std::string> decode_json_string(std::string_view quoted) {
  if (quoted.size() < 2 || quoted.front() != '"' || quoted.back() != '"') return std::nullopt;
  const std::string_view text = quoted.substr(1, quoted.size() - 2);
  constexpr std::pair<char, char> kSimple[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'b', '\b'},
                                               {'f', '\f'}, {'"', '"'},  {'/', '/'},  {'\\', '\\'}};
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') return std::nullopt;
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] == 'u') {
      const auto point = escaped_character(text.substr(i + 1), i);
      if (!point) return std::nullopt;
      append_utf8(out, *point);
      continue;
    }
    const auto simple = std::ranges::find(kSimple, text[i], &std::pair<char, char>::first);
    if (simple == std::end(kSimple)) return std::nullopt;
    out += simple->second;
  }
  return out;
}

std::string encode_json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool is_json(std::string_view text) { return Checker(text).whole(); }

JsonCallReader::JsonCallReader(std::function<bool(std::string_view)> known, Sink sink)
    : known_(std::move(known)), sink_(std::move(sink)) {}

JsonCallReader JsonCallReader::of_arguments(Sink sink) {
  JsonCallReader reader(nullptr, std::move(sink));
  reader.place_ = Place::value_start;
  reader.field_ = Field::arguments;
  reader.alone_ = reader.begun_ = true;
  return reader;
}

void JsonCallReader::begin() {
  begun_ = true;
  sink_.begin(name_);
}

void JsonCallReader::flush() {
  if (streaming_ && !token_.empty()) sink_.arguments(std::exchange(token_, {}));
}

bool JsonCallReader::end_early() {
  flush();
  return begun_ && has_arguments_ && !(place_ == Place::value && field_ == Field::arguments);
}

JsonCallReader::State JsonCallReader::end_value() {
  place_ = Place::comma_or_end;
  if (field_ == Field::name) {
    const auto name = decode_json_string(token_);
    if (!name || !known_(*name)) return State::failed;
    name_ = *name;
  } else if (field_ == Field::arguments) {
    has_arguments_ = true;
    flush();
    if (!streaming_) {
      // Some models write the object as a text, as OpenAI's interface does.
      waiting_ = first_ == '"' ? decode_json_string(token_).value_or("") : token_;
      if (waiting_.empty()) waiting_ = "{}";
      if (!is_json(waiting_) || waiting_.find_first_of('{') != waiting_.find_first_not_of(" \t\r\n")) {
        return State::failed;
      }
    }
    streaming_ = false;
    if (alone_) return end_object();
  }
  token_.clear();
  return State::reading;
}

JsonCallReader::State JsonCallReader::end_object() {
  if (!alone_ && name_.empty()) return State::failed;
  if (!begun_) begin();
  if (!has_arguments_) waiting_ = "{}";
  if (!waiting_.empty()) sink_.arguments(std::exchange(waiting_, {}));
  return State::done;
}

JsonCallReader::State JsonCallReader::push_value(char c) {
  if (in_string_) {
    token_ += c;
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 0) return end_value();
    }
    return State::reading;
  }
  const bool scalar = first_ != '{' && first_ != '[';
  if (scalar && (c == ',' || c == '}' || is_space(c))) {
    if (const State ended = end_value(); ended != State::reading) return ended;
    return push(c);
  }
  if (c == '<') return State::failed;  // of a marker: no JSON has it outside of strings
  token_ += c;
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  if (depth_ > kMostLevels) return State::failed;
  return !scalar && depth_ == 0 ? end_value() : State::reading;
}

JsonCallReader::State JsonCallReader::push(char c) {
  if (place_ == Place::value) return push_value(c);
  if (place_ == Place::key) {
    token_ += c;
    if (!escaped_ && c == '"') {
      const std::string key = decode_json_string(token_).value_or("");
      const bool arguments = key == "arguments" || key == "parameters";
      field_ = key == "name" ? Field::name : arguments ? Field::arguments : Field::other;
      place_ = Place::colon;
      token_.clear();
    }
    escaped_ = !escaped_ && c == '\\';
    return State::reading;
  }
  if (is_space(c)) return State::reading;
  switch (place_) {
    case Place::start: place_ = Place::key_or_end; return c == '{' ? State::reading : State::failed;
    case Place::colon: place_ = Place::value_start; return c == ':' ? State::reading : State::failed;
    case Place::value_start:
      place_ = Place::value;
      first_ = c;
      depth_ = 0;
      in_string_ = escaped_ = false;
      if (field_ == Field::arguments && c == '{' && (alone_ || !name_.empty())) {
        if (!begun_) begin();
        streaming_ = true;
      }
      if (alone_ && c != '{') return State::failed;
      if (c != '"' && c != '{' && c != '[' && c != '-' && !(c >= '0' && c <= '9') && c != 't' && c != 'f' && c != 'n') {
        return State::failed;
      }
      return push_value(c);
    case Place::comma_or_end:
      if (c == ',') return place_ = Place::key_or_end, State::reading;
      return c == '}' ? end_object() : State::failed;
    case Place::key_or_end:
      if (c == '}') return end_object();
      place_ = Place::key;
      token_ = c;
      return c == '"' ? State::reading : State::failed;
    case Place::key:
    case Place::value: break;
  }
  return State::failed;
}

}  // namespace nanomind
