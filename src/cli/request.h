// SPDX-License-Identifier: Apache-2.0
// [MODEL] and [question] among the words of a command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/context.h"

namespace nanomind {

struct Request {
  std::string model;                    // empty: the default
  std::optional<std::string> question;  // absent: there is none
};

// At most two words; a single one is a model where names_model says so, or else the question. `command` is for the
// error.
Result<Request> split_words(const Context& context, std::string_view command, const std::vector<std::string>& words);

}  // namespace nanomind
