// SPDX-License-Identifier: Apache-2.0
// Pictures that a person names.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/context.h"
#include "runtime/engine.h"

namespace nanomind {

// Shows files to the engine, in order; an error names the file.
Result<std::vector<SeenPicture>> see_pictures(const Context& context, Engine& engine,
                                              const std::vector<std::string>& files);

// As Message::pictures has them.
std::vector<PicturePrompt> prompts(const std::vector<SeenPicture>& pictures);

}  // namespace nanomind
