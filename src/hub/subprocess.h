// SPDX-License-Identifier: Apache-2.0
// Runs another program without a shell, in a process group of its own so that it can be stopped with its children.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"

namespace nanomind {

struct Command {
  std::vector<std::string> words;        // the first is found through PATH
  std::vector<std::string> environment;  // "NAME=value", added to ours or replacing; "NAME" alone removes
  std::filesystem::path output;          // file for what it says on stdout and stderr
};

// The exit status (128 + signal when it was killed), or nothing if there is no such program. `tick` is called about ten
// times a second while it runs. Errors: cancelled, after the program has ended; io.
Result<std::optional<int>> run_command(const Command& command, const std::function<void()>& tick, std::stop_token stop);

}  // namespace nanomind
