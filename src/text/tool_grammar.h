// SPDX-License-Identifier: Apache-2.0
// Grammars for answers that must be calls of tools, in the syntax of each family of models (tool_calls.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tool_calls.h"

namespace nanomind {

struct CallableTool {
  std::string name;
  std::string parameters;  // JSON schema of its arguments, an object; empty: it takes none
};

enum class CallCount { one, some };      // some: 1 to kMostCalls
inline constexpr size_t kMostCalls = 8;  // small models do not stop by themselves

// A grammar in Lark (Grammar::from_lark) of calls of these tools and nothing else, with arguments that meet the
// schemas. Arguments that a schema does not name are left out, unless it says that there may be others. White space is
// fixed, as models were trained to write it. `tokenizer` tells which markers are control tokens. invalid_argument when
// there are no tools or a schema is no JSON object, unsupported for ToolFormat::none; what a schema asks beyond what
// grammars can keep is an error when the grammar is compiled.
Result<std::string> tool_grammar(std::span<const CallableTool> tools, ToolFormat format, CallCount count,
                                 const Tokenizer& tokenizer);

}  // namespace nanomind
