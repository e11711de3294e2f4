// SPDX-License-Identifier: Apache-2.0
// --draft: guessing tokens ahead, from the text itself or with a small model.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "cli/model_options.h"
#include "runtime/engine.h"

namespace nanomind {

// What guesses, for GenerateOptions::speculation; alive as long as answers are made with it.
struct Draft {
  std::unique_ptr<Engine> engine;  // null without a small model
  std::unique_ptr<Session> session;
  SpeculationOptions options;
};

// `what` is as typed: empty (none), "lookup", or a model. invalid_argument when the model's tokens are others than
// those of `engine`.
Result<Draft> load_draft(const Context& context, const std::string& what, const EngineFlags& flags,
                         const Engine& engine);

}  // namespace nanomind
