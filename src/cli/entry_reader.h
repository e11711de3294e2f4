// SPDX-License-Identifier: Apache-2.0
// What a person enters in a chat may take several lines: a backslash at a line's end continues it, and """ opens a
// block that the next """ closes. A paste arrives as one line that contains newlines.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "cli/line_editor.h"

namespace nanomind {

using ReadLine = std::function<Result<Line>(std::string_view prompt)>;

// One whole entry. Ctrl-C inside it throws all of it away; the end of the input ends it.
Result<Line> read_entry(const ReadLine& read_line);

}  // namespace nanomind
