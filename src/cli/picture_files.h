// SPDX-License-Identifier: Apache-2.0
// Pictures that a person names.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/context.h"
#include "runtime/engine.h"

namespace nanomind {

// Shows files to the engine, in order; an error names the file. Tokens as Message::pictures has them.
Result<std::vector<std::vector<TokenId>>> see_pictures(const Context& context, Engine& engine,
                                                       const std::vector<std::string>& files);

}  // namespace nanomind
