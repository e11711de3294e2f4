// SPDX-License-Identifier: Apache-2.0
#include "text/gbnf.h"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "text/gbnf_sets.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

using Kind = GbnfNode::Kind;

// A literal as Lark writes it, which is as JSON does.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

class Writer {
 public:
  explicit Writer(const std::vector<GbnfRule>& rules) : rules_(rules), sets_(rules), spelled_(rules.size()) {}
  std::string write();

 private:
  // How a part is written: as a rule of terminals, within a terminal, or as a rule whose terminals are one character.
  enum class Level { rule, terminal, character };

  std::string express(const GbnfNode& node, Level level, const CharacterSet& after);
  std::string express_sequence(const GbnfNode& node, Level level, const CharacterSet& after);
  std::string express_repeat(const GbnfNode& node, Level level, const CharacterSet& after);
  std::string express_literal(const GbnfNode& node, Level level) const;
  std::string express_rule(size_t index, Level level);
  // What stands in a row without recursion: one terminal, where its longest text is the right one.
  std::string express_run(std::span<const GbnfNode> run, const CharacterSet& after);
  std::string terminal_of(std::span<const GbnfNode> run);

  const std::vector<GbnfRule>& rules_;
  GbnfSets sets_;
  std::vector<bool> spelled_;  // rules that are written by characters too
  std::vector<size_t> to_spell_;
  std::string terminals_;
  size_t terminal_count_ = 0;
};

// Rules are told from terminals by the case of their names.
std::string Writer::express_rule(size_t index, Level level) {
  if (sets_.recursive(index)) return fmt::format("r{}", index);
  if (level != Level::character) return fmt::format("R{}", index);
  if (!spelled_[index]) to_spell_.push_back(index);
  spelled_[index] = true;
  return fmt::format("c{}", index);
}

std::string Writer::terminal_of(std::span<const GbnfNode> run) {
  if (run.size() == 1 && run[0].kind == Kind::rule) return express_rule(run[0].index, Level::terminal);
  std::string body;
  for (const GbnfNode& node : run) body += (body.empty() ? "" : " ") + express(node, Level::terminal, {});
  const std::string terminal = fmt::format("T{}", terminal_count_++);
  terminals_ += fmt::format("{}: {}\n", terminal, body);
  return terminal;
}

std::string Writer::express_run(std::span<const GbnfNode> run, const CharacterSet& after) {
  GbnfNode whole{.kind = Kind::sequence, .parts = {run.begin(), run.end()}};
  // A rule that is a row itself is looked into, so that only its end is spelled out.
  while (whole.parts.size() == 1 && whole.parts[0].kind == Kind::rule) {
    const GbnfNode& body = rules_[whole.parts[0].index].body;
    if (body.kind != Kind::alternatives || body.parts.size() != 1) break;
    GbnfNode inner = body.parts[0];
    whole = std::move(inner);
  }
  if (!sets_.extending(whole).intersects(after)) return terminal_of(run);
  // The end that may be empty, such as white space, is written by characters; then the rest may be a terminal.
  size_t end = whole.parts.size();
  while (end > 0 && sets_.may_be_empty(whole.parts[end - 1])) --end;
  if (end == whole.parts.size()) end = 0;
  const std::span<const GbnfNode> parts = whole.parts;
  std::string out;
  if (end > 0) {
    const GbnfNode core{.kind = Kind::sequence,
                        .parts = {parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(end)}};
    if (sets_.extending(core).intersects(sets_.following(whole, end - 1, after))) {
      end = 0;
    } else {
      out = terminal_of(parts.first(end));
    }
  }
  for (const GbnfNode& node : parts.subspan(end)) {
    out += (out.empty() ? "" : " ") + express(node, Level::character, after);
  }
  return out;
}

std::string Writer::express_sequence(const GbnfNode& node, Level level, const CharacterSet& after) {
  if (node.parts.empty()) return "\"\"";
  std::string out;
  for (size_t i = 0; i < node.parts.size();) {
    if (!out.empty()) out += ' ';
    size_t end = i;
    while (level == Level::rule && end < node.parts.size() && !sets_.recursive(node.parts[end])) ++end;
    if (end > i) {
      out += express_run(std::span(node.parts).subspan(i, end - i), sets_.following(node, end - 1, after));
      i = end;
    } else {
      out += express(node.parts[i], level, sets_.following(node, i, after));
      ++i;
    }
  }
  return out;
}

std::string Writer::express_repeat(const GbnfNode& node, Level level, const CharacterSet& after) {
  CharacterSet next = after;
  if (node.most > 1) next.add(sets_.first(node.parts[0]));
  const std::string body = "(" + express(node.parts[0], level, next) + ")";
  if (node.most == GbnfNode::kUnbounded) {
    if (node.least <= 1) return body + (node.least == 0 ? "*" : "+");
    return fmt::format("{}{{{},}}", body, node.least);
  }
  if (node.most == 0) return "\"\"";
  if (node.least == 0 && node.most == 1) return body + "?";
  return fmt::format("{}{{{},{}}}", body, node.least, node.most);
}

std::string Writer::express_literal(const GbnfNode& node, Level level) const {
  if (level == Level::terminal) return quoted(node.text);
  std::string out;
  for (size_t i = 0; i < node.text.size();) {
    const size_t length = next_utf8(node.text, i).length;
    out += (out.empty() ? "" : " ") + quoted(std::string_view(node.text).substr(i, length));
    i += length;
  }
  return "(" + out + ")";
}

std::string Writer::express(const GbnfNode& node, Level level, const CharacterSet& after) {
  if (level == Level::rule && !sets_.recursive(node)) return express_run({&node, 1}, after);
  switch (node.kind) {
    case Kind::literal: return express_literal(node, level);
    case Kind::characters: return "/" + node.set.expression() + "/";
    case Kind::rule: return express_rule(node.index, level);
    case Kind::sequence: return express_sequence(node, level, after);
    case Kind::repeat: return express_repeat(node, level, after);
    case Kind::alternatives: break;
  }
  std::string out;
  for (const GbnfNode& part : node.parts) out += (out.empty() ? "" : " | ") + express(part, level, after);
  return "(" + out + ")";
}

std::string Writer::write() {
  std::string out = fmt::format("start: {}\n", express_rule(0, Level::rule));
  for (size_t i = 0; i < rules_.size(); ++i) {
    const Level level = sets_.recursive(i) ? Level::rule : Level::terminal;
    out += fmt::format("{}: {}\n", express_rule(i, level), express(rules_[i].body, level, sets_.following(i)));
  }
  while (!to_spell_.empty()) {
    const size_t i = to_spell_.back();
    to_spell_.pop_back();
    out += fmt::format("c{}: {}\n", i, express(rules_[i].body, Level::character, {}));
  }
  return out + terminals_;
}

}  // namespace

Result<std::string> lark_from_gbnf(std::string_view gbnf) {
  const std::vector<GbnfRule> rules = TRY(parse_gbnf(gbnf));
  return Writer(rules).write();
}

}  // namespace nanomind
