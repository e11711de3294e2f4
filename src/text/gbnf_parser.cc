// SPDX-License-Identifier: Apache-2.0
#include "text/gbnf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr int kMostLevels = 100;
constexpr uint32_t kMostRepeats = 100'000;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  Result<std::vector<GbnfRule>> parse();

 private:
  enum class Lines { end_rule, are_space };

  std::unexpected<Error> refuse(std::string_view what) const {
    return fail(ErrorCode::invalid_argument, fmt::format("The grammar cannot be read. Line {}: {}.", line_, what));
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool skip(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  void skip_space(Lines lines);
  std::string_view name();
  size_t number_of(std::string_view name);

  Result<void> rule();
  Result<GbnfNode> alternatives(Lines lines, int level);
  Result<GbnfNode> sequence(Lines lines, int level);
  Result<std::optional<GbnfNode>> item(Lines lines, int level);
  Result<GbnfNode> literal();
  Result<GbnfNode> characters();
  Result<void> repeat(GbnfNode& node);
  Result<std::pair<uint32_t, uint32_t>> bounds();
  Result<uint32_t> count();
  Result<uint32_t> character();
  Result<uint32_t> escape();

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<GbnfRule> rules_;  // line 0: used, not yet defined
  std::vector<int> used_on_;     // line of each rule's first use
  std::map<std::string, size_t, std::less<>> numbers_;
};

void Parser::skip_space(Lines lines) {
  while (!at_end()) {
    const char c = peek();
    if (c == '#') {
      while (!at_end() && peek() != '\n') ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines == Lines::are_space)) {
      if (c == '\n') ++line_;
      ++at_;
    } else {
      return;
    }
  }
}

std::string_view Parser::name() {
  const size_t start = at_;
  while (!at_end() && is_name(peek())) ++at_;
  return text_.substr(start, at_ - start);
}

size_t Parser::number_of(std::string_view name) {
  if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
  numbers_.emplace(name, rules_.size());
  rules_.push_back({.name = std::string(name), .line = 0, .body = {}});
  used_on_.push_back(line_);
  return rules_.size() - 1;
}

Result<uint32_t> Parser::escape() {
  const char kind = peek();
  ++at_;
  constexpr std::pair<char, int> kHex[] = {{'x', 2}, {'u', 4}, {'U', 8}};
  for (const auto& [letter, digits] : kHex) {
    if (kind != letter) continue;
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(peek() | 0x20));
      if (digit == std::string_view::npos) return refuse(fmt::format("\\{} needs {} hexadecimal digits", kind, digits));
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return refuse(fmt::format("\\{}{:X} is no character", kind, value));
    }
    return value;
  }
  constexpr std::pair<char, char> kSimple[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'},
                                               {'"', '"'},  {'[', '['},  {']', ']'}};
  for (const auto& [letter, meaning] : kSimple) {
    if (kind == letter) return static_cast<uint32_t>(meaning);
  }
  return refuse(fmt::format("there is no escape \\{}", kind));
}

// One character of a literal or a class, whose end the caller has looked for.
Result<uint32_t> Parser::character() {
  if (at_end() || peek() == '\n') return refuse("a text or a class of characters is not closed");
  if (skip("\\")) {
    if (at_end()) return refuse("the grammar ends within an escape");
    return escape();
  }
  const Utf8Step step = next_utf8(text_, at_);
  if (step.kind != Utf8Kind::valid) return refuse("this is not UTF-8");
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text_[at_ + i])); };
  uint32_t point = step.length == 1 ? byte(0) : byte(0) & (0x7FU >> step.length);
  for (size_t i = 1; i < step.length; ++i) point = point << 6 | (byte(i) & 0x3F);
  at_ += step.length;
  return point;
}

Result<GbnfNode> Parser::literal() {
  GbnfNode node{.kind = GbnfNode::Kind::literal};
  while (!skip("\"")) append_utf8(node.text, TRY(character()));
  if (node.text.empty()) node.kind = GbnfNode::Kind::sequence;
  return node;
}

Result<GbnfNode> Parser::characters() {
  GbnfNode node{.kind = GbnfNode::Kind::characters};
  const bool negated = skip("^");
  while (!skip("]")) {
    const uint32_t first = TRY(character());
    uint32_t last = first;
    if (peek() == '-' && !text_.substr(at_).starts_with("-]")) {
      ++at_;
      last = TRY(character());
    }
    if (last < first) return refuse("a range of characters goes backwards");
    node.set.add(first, last);
  }
  if (node.set.empty()) return refuse("a class of characters is empty");
  if (negated) node.set = node.set.complement();
  if (node.set.empty()) return refuse("a class of characters leaves none");
  return node;
}

Result<uint32_t> Parser::count() {
  uint32_t value = 0;
  const size_t start = at_;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    value = value * 10 + static_cast<uint32_t>(peek() - '0');
    if (value > kMostRepeats) return refuse(fmt::format("more than {} repetitions are not supported", kMostRepeats));
  }
  if (at_ == start) return refuse("a number of repetitions is missing after {");
  return value;
}

// What stands after "{".
Result<std::pair<uint32_t, uint32_t>> Parser::bounds() {
  skip_space(Lines::are_space);
  const uint32_t least = TRY(count());
  uint32_t most = least;
  skip_space(Lines::are_space);
  if (skip(",")) {
    skip_space(Lines::are_space);
    most = peek() == '}' ? GbnfNode::kUnbounded : TRY(count());
    skip_space(Lines::are_space);
  }
  if (!skip("}")) return refuse("} is missing after a number of repetitions");
  if (most < least) return refuse("the most repetitions are fewer than the least");
  return std::pair(least, most);
}

Result<void> Parser::repeat(GbnfNode& node) {
  for (int times = 0;; ++times) {
    uint32_t least = 0, most = GbnfNode::kUnbounded;
    if (skip("+")) {
      least = 1;
    } else if (skip("?")) {
      most = 1;
    } else if (skip("{")) {
      std::tie(least, most) = TRY(bounds());
    } else if (!skip("*")) {
      return {};
    }
    if (times > kMostLevels) return refuse("too many repetitions of repetitions");
    GbnfNode repeated{.kind = GbnfNode::Kind::repeat, .least = least, .most = most};
    repeated.parts.push_back(std::move(node));
    node = std::move(repeated);
  }
}

// Nothing at the end of a sequence.
Result<std::optional<GbnfNode>> Parser::item(Lines lines, int level) {
  GbnfNode node;
  if (skip("\"")) {
    node = TRY(literal());
  } else if (skip("[")) {
    node = TRY(characters());
  } else if (skip(".")) {
    node = {.kind = GbnfNode::Kind::characters, .set = CharacterSet().complement()};
  } else if (skip("(")) {
    if (level >= kMostLevels) return refuse(fmt::format("groups are nested more than {} levels deep", kMostLevels));
    node = TRY(alternatives(Lines::are_space, level + 1));
    if (!skip(")")) return refuse("a closing parenthesis is missing");
  } else if (peek() == '<' || peek() == '!') {
    return refuse("tokens such as <think> are not supported; write the text that is wanted");
  } else if (is_name(peek())) {
    // In a group lines mean nothing, but a name and ::= still begin a rule.
    node = {.kind = GbnfNode::Kind::rule, .index = number_of(name())};
  } else {
    return std::nullopt;
  }
  TRY(repeat(node));
  skip_space(lines);
  return node;
}

Result<GbnfNode> Parser::sequence(Lines lines, int level) {
  GbnfNode node{.kind = GbnfNode::Kind::sequence};
  skip_space(lines);
  while (auto part = TRY(item(lines, level))) node.parts.push_back(std::move(*part));
  return node;
}

Result<GbnfNode> Parser::alternatives(Lines lines, int level) {
  GbnfNode node{.kind = GbnfNode::Kind::alternatives};
  skip_space(Lines::are_space);
  do {
    if (!node.parts.empty()) skip_space(Lines::are_space);
    node.parts.push_back(TRY(sequence(lines, level)));
  } while (skip("|"));
  return node;
}

Result<void> Parser::rule() {
  const int line = line_;
  const std::string_view rule_name = name();
  if (rule_name.empty()) return refuse(fmt::format("a rule should begin here, as in: root ::= \"yes\" | \"no\""));
  skip_space(Lines::end_rule);
  if (!skip("::=")) return refuse(fmt::format("::= is missing after {}", rule_name));
  const size_t number = number_of(rule_name);
  if (rules_[number].line != 0) {
    return refuse(fmt::format("the rule {} was defined on line {} already", rule_name, rules_[number].line));
  }
  rules_[number].line = line;
  GbnfNode body = TRY(alternatives(Lines::end_rule, 0));
  rules_[number].body = std::move(body);
  if (!at_end() && peek() != '\n') return refuse(fmt::format("'{}' is not expected here", peek()));
  return {};
}

Result<std::vector<GbnfRule>> Parser::parse() {
  if (text_.size() > kMostBytes) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("The grammar has {} bytes; at most {} are accepted.", text_.size(), kMostBytes));
  }
  number_of("root");
  for (skip_space(Lines::are_space); !at_end(); skip_space(Lines::are_space)) TRY(rule());
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].line != 0) continue;
    if (i == 0) return fail(ErrorCode::invalid_argument, "The grammar has no rule named root, where it would begin.");
    line_ = used_on_[i];
    return refuse(fmt::format("the rule {} is used but not defined", rules_[i].name));
  }
  return std::move(rules_);
}

}  // namespace

Result<std::vector<GbnfRule>> parse_gbnf(std::string_view text) { return Parser(text).parse(); }

}  // namespace nanomind
