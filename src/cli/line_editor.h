// SPDX-License-Identifier: Apache-2.0
// Lines from a person: edited, with history, on a terminal.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct NanomindLineEditor;

namespace nanomind {

struct Line {
  enum class Kind {
    text,
    end_of_input,
    interrupted,           // Ctrl-C that threw a line away
    interrupted_at_start,  // Ctrl-C at an empty prompt
  };
  Kind kind = Kind::text;
  std::string text;
};

// Works on the controlling terminal, so that standard output stays free for answers. One thread at a time.
class LineEditor {
 public:
  // An empty `history` keeps the history in memory only. `commands`, separated by spaces, are completed by Tab.
  static Result<LineEditor> create(const std::filesystem::path& history, std::string_view commands);

  Result<Line> read(std::string_view prompt);
  Result<void> remember(std::string_view entry);

 private:
  struct Free {
    void operator()(NanomindLineEditor* editor) const;
  };
  explicit LineEditor(NanomindLineEditor* editor) : editor_(editor) {}
  std::unique_ptr<NanomindLineEditor, Free> editor_;
};

}  // namespace nanomind
