// SPDX-License-Identifier: Apache-2.0
#include "cli/line_editor.h"

#include <nanomind_line_editor.h>

namespace nanomind {
namespace {

NanomindBytes lend(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

std::string take_text(NanomindText& text) {
  std::string copy(reinterpret_cast<const char*>(text.data), text.size);
  nanomind_text_release(&text);
  return copy;
}

}  // namespace

void LineEditor::Free::operator()(NanomindLineEditor* editor) const { nanomind_line_editor_free(editor); }

Result<LineEditor> LineEditor::create(const std::filesystem::path& history, std::string_view commands) {
  NanomindText error{};
  NanomindLineEditor* editor = nanomind_line_editor_create(lend(history.native()), lend(commands), &error);
  if (editor == nullptr) return fail(ErrorCode::io, take_text(error));
  return LineEditor(editor);
}

Result<Line> LineEditor::read(std::string_view prompt) {
  NanomindText text{};
  const int32_t kind = nanomind_line_editor_read(editor_.get(), lend(prompt), &text);
  std::string content = take_text(text);
  switch (kind) {
    case NANOMIND_LINE_TEXT: return Line{.kind = Line::Kind::text, .text = std::move(content)};
    case NANOMIND_LINE_END_OF_INPUT: return Line{.kind = Line::Kind::end_of_input, .text = {}};
    case NANOMIND_LINE_INTERRUPTED: return Line{.kind = Line::Kind::interrupted, .text = {}};
    case NANOMIND_LINE_INTERRUPTED_EMPTY: return Line{.kind = Line::Kind::interrupted_at_start, .text = {}};
    default: return fail(ErrorCode::io, std::move(content));
  }
}

Result<void> LineEditor::remember(std::string_view entry) {
  NanomindText error{};
  if (nanomind_line_editor_remember(editor_.get(), lend(entry), &error) != 0)
    return fail(ErrorCode::io, take_text(error));
  return {};
}

}  // namespace nanomind
