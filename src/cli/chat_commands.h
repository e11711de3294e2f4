// SPDX-License-Identifier: Apache-2.0
// Lines of a chat that begin with "/".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/chat_file.h"
#include "cli/context.h"
#include "runtime/engine.h"

namespace nanomind {

enum class AfterCommand { go_on, leave };

struct ChatState {
  Conversation conversation;
  PictureDetail detail;            // of pictures
  Turn next;                       // the next question: its pictures are shown already
  std::optional<Generation> last;  // the latest answer
};

// True for a single line that begins with "/"; a space before it makes it a question.
bool is_chat_command(std::string_view entry);

// Runs one; what it says goes to standard error. Failures leave the state as it was.
Result<AfterCommand> run_chat_command(const Context& context, Engine& engine, Session& session, std::string_view entry,
                                      ChatState& state);

// Their names, separated by spaces.
std::string chat_command_names();

}  // namespace nanomind
