// SPDX-License-Identifier: Apache-2.0
// A conversation with a model, until the person leaves.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "cli/model_options.h"
#include "runtime/engine.h"

namespace nanomind {

// Questions come from the terminal with line editing and history, or line by line from a pipe. Answers go to standard
// output, everything else to standard error. A question that fails is reported and forgotten; the conversation goes on.
// `engine_flags` are for a second engine that guesses.
Result<void> chat(const Context& context, Engine& engine, const std::string& model, const AnswerFlags& flags,
                  const EngineFlags& engine_flags);

}  // namespace nanomind
