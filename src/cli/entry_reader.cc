// SPDX-License-Identifier: Apache-2.0
#include "cli/entry_reader.h"

#include <string>

namespace nanomind {
namespace {

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kMorePrompt = "... ";
constexpr std::string_view kBlock = "\"\"\"";

// Continues `text` by lines for as long as `is_open(text)`.
template <typename IsOpen, typename Join>
Result<Line> read_more(const ReadLine& read_line, std::string text, const IsOpen& is_open, const Join& join) {
  while (is_open(text)) {
    const Line line = TRY(read_line(kMorePrompt));
    if (line.kind == Line::Kind::end_of_input) break;
    if (line.kind != Line::Kind::text) return Line{.kind = Line::Kind::interrupted, .text = {}};
    join(text, line.text);
  }
  return Line{.kind = Line::Kind::text, .text = std::move(text)};
}

Result<Line> read_block(const ReadLine& read_line, std::string_view first) {
  Line entry = TRY(read_more(
      read_line, std::string(first.substr(kBlock.size())),
      [](const std::string& text) { return !text.ends_with(kBlock); },
      [](std::string& text, const std::string& line) {
        if (!text.empty()) text += '\n';
        text += line;
      }));
  if (entry.text.ends_with(kBlock)) entry.text.resize(entry.text.size() - kBlock.size());
  if (entry.text.ends_with('\n')) entry.text.pop_back();
  return entry;
}

}  // namespace

Result<Line> read_entry(const ReadLine& read_line) {
  const Line first = TRY(read_line(kPrompt));
  if (first.kind != Line::Kind::text) return first;
  if (first.text.starts_with(kBlock)) return read_block(read_line, first.text);
  return read_more(
      read_line, first.text, [](const std::string& text) { return text.ends_with('\\'); },
      [](std::string& text, const std::string& line) {
        text.back() = '\n';
        text += line;
      });
}

}  // namespace nanomind
