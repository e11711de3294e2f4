// SPDX-License-Identifier: Apache-2.0
// Which model is asked about a picture, and what a person is told whose model sees none.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/models.h"

namespace nanomind {

// What is asked, to show it in commands.
struct PictureQuestion {
  std::string command;               // "run"
  std::vector<std::string> options;  // that name the pictures, as typed
  std::string question;
};

// As locate_model, for a model with a vision file. Where `text` is empty and the usual model sees nothing, the only
// model here that sees is taken, which is said on standard error. Else the error names models that see, as commands;
// nothing is pulled before it is known that it will see, as far as the catalog can tell. A vision file that the flags
// name makes any model see; flags that want none are an error.
Result<LocatedModel> locate_seeing_model(const Context& context, const std::string& text, const EngineFlags& flags,
                                         const PictureQuestion& picture);

}  // namespace nanomind
