// SPDX-License-Identifier: Apache-2.0
// Conversations in the order of roles that every chat template takes, for templates that refuse them as they are.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"

namespace nanomind {

// Where what the system says goes, which may stand anywhere: into one message at the beginning, or, for templates that
// know no such role, before the first question.
enum class SystemPlace { first_message, first_question };

// The same conversation with user and assistant in turn: neighbours of one role are joined by an empty line, and an
// empty question comes before an assistant who begins. Nothing is left out, though a message's pictures all come before
// its content; messages with calls, and those of other roles, stay as they are.
std::vector<Message> usual_order(std::span<const Message> messages, SystemPlace place);

// The prompt as the template writes it; where it refuses a system message, or roles that do not take turns, that of the
// conversation in the usual order. The error is that of the conversation as it is.
Result<std::string> render_in_any_order(const ChatTemplate& chat_template, std::span<const Message> messages,
                                        const TemplateOptions& options);

}  // namespace nanomind
