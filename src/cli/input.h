// SPDX-License-Identifier: Apache-2.0
// Standard input as text that belongs to a question.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/context.h"

namespace nanomind {

bool input_is_terminal();

// All of standard input when it is a pipe, a file or a socket; empty for a terminal, a device such as /dev/null, or
// when it is closed. Says on standard error that it waits when nothing comes for two seconds.
Result<std::optional<std::string>> read_piped_input(const Context& context);

// All of standard input, whatever it is.
Result<std::string> read_all_input();

}  // namespace nanomind
