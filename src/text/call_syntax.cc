// SPDX-License-Identifier: Apache-2.0
#include "text/call_syntax.h"

#include <utility>

#include "text/json_call.h"

namespace nanomind {
namespace {

constexpr int kMostLevels = 100;
constexpr std::string_view kSpace = " \t\r\n";

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return begins_name(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; }

// Writes Python literals as JSON.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  std::optional<std::vector<WrittenCall>> calls() {
    std::vector<WrittenCall> calls;
    const bool list = take('[');
    do {
      WrittenCall call;
      if (!read_call(call)) return std::nullopt;
      calls.push_back(std::move(call));
    } while (take(list ? ',' : ';') && !at_end());
    if (list && !take(']')) return std::nullopt;
    if (!at_end()) return std::nullopt;
    return calls;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool at_end() { return skip_space(), at_ == text_.size(); }
  char peek() { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) { return peek() == c ? (++at_, true) : false; }
  std::string_view name() {
    skip_space();
    const size_t start = at_;
    if (begins_name(peek())) {
      while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  bool read_call(WrittenCall& call) {
    call.name = name();
    if (call.name.empty() || !take('(')) return false;
    call.arguments = "{";
    while (!take(')')) {
      if (call.arguments.size() > 1) {
        if (!take(',')) return false;
        if (take(')')) break;
        call.arguments += ", ";
      }
      const std::string_view key = name();
      if (key.empty() || !take('=')) return false;
      call.arguments += encode_json_string(key) + ": ";
      if (!value(call.arguments, 0)) return false;
    }
    call.arguments += "}";
    return true;
  }

  bool value(std::string& out, int level) {
    if (level > kMostLevels) return false;
    const char c = peek();
    if (c == '"' || c == '\'') return string(out);
    if (c == '[') return items(out, ']', "]", level);
    if (c == '(') return items(out, ')', "]", level);
    if (c == '{') return items(out, '}', "}", level);
    constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}, {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (const auto& [python, json] : kWords) {
      if (!text_.substr(at_).starts_with(python)) continue;
      at_ += python.size();
      out += json;
      return true;
    }
    const size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos) ++at_;
    out += text_.substr(start, at_ - start);
    return is_json(text_.substr(start, at_ - start));
  }

  bool items(std::string& out, char close, std::string_view json_close, int level) {
    ++at_;
    const bool dictionary = close == '}';
    out += dictionary ? "{" : "[";
    for (bool first = true; !take(close); first = false) {
      if (!first) {
        if (!take(',')) return false;
        if (take(close)) break;
        out += ", ";
      }
      if (dictionary) {
        if (peek() != '"' && peek() != '\'') return false;
        if (!string(out) || !take(':')) return false;
        out += ": ";
      }
      if (!value(out, level + 1)) return false;
    }
    out += json_close;
    return true;
  }

  bool string(std::string& out) {
    const size_t start = at_;
    const char quote = text_[at_++];
    std::string decoded;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        decoded += text_[at_];
        continue;
      }
      const char c = text_[++at_];
      decoded += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    }
    if (at_ == text_.size()) return false;
    ++at_;
    // JSON knows more escapes than are taken above.
    if (auto json = decode_json_string(text_.substr(start, at_ - start))) decoded = *std::move(json);
    out += encode_json_string(decoded);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

class XmlReader {
 public:
  XmlReader(std::string_view text, const std::function<bool(std::string_view, std::string_view)>& takes_text)
      : text_(text), takes_text_(takes_text) {}

  std::optional<std::vector<WrittenCall>> calls() {
    std::vector<WrittenCall> calls;
    do {
      WrittenCall call;
      if (!function(call)) return std::nullopt;
      calls.push_back(std::move(call));
    } while (skip_space(), at_ < text_.size());
    return calls;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && kSpace.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(std::string_view expected) {
    skip_space();
    return text_.substr(at_).starts_with(expected) ? (at_ += expected.size(), true) : false;
  }
  // What stands before `end`, which is taken too; null when that is missing.
  std::optional<std::string_view> until(std::string_view end) {
    const size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return std::nullopt;
    const std::string_view before = text_.substr(at_, found - at_);
    at_ = found + end.size();
    return before;
  }

  bool function(WrittenCall& call) {
    if (!take("<function=")) return false;
    const auto name = until(">");
    if (!name || name->empty()) return false;
    call.name = *name;
    call.arguments = "{";
    while (!take("</function>")) {
      // Some models forget the end of the last call.
      if (skip_space(), at_ == text_.size()) break;
      if (!take("<parameter=")) return false;
      const auto key = until(">");
      auto value = key ? until("</parameter>") : std::nullopt;
      if (!value) return false;
      if (value->starts_with('\n')) value->remove_prefix(1);
      if (value->ends_with('\n')) value->remove_suffix(1);
      const bool text = takes_text_ && takes_text_(call.name, *key);
      if (call.arguments.size() > 1) call.arguments += ", ";
      call.arguments += encode_json_string(*key) + ": ";
      call.arguments += !text && is_json(*value) ? std::string(*value) : encode_json_string(*value);
    }
    call.arguments += "}";
    return true;
  }

  std::string_view text_;
  const std::function<bool(std::string_view, std::string_view)>& takes_text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<WrittenCall>> read_python_calls(std::string_view text) { return PythonReader(text).calls(); }

std::optional<std::vector<WrittenCall>> read_xml_calls(
    std::string_view text, const std::function<bool(std::string_view, std::string_view)>& takes_text) {
  return XmlReader(text, takes_text).calls();
}

}  // namespace nanomind
