// SPDX-License-Identifier: Apache-2.0
// Whether a model calls a tool: as it likes, never, always, or always the same one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "runtime/generation.h"
#include "text/tool_calls.h"

namespace nanomind {

struct ToolChoice {
  enum class Kind { automatic, none, required, named } kind = Kind::automatic;
  std::string name;  // of the tool, where it is named

  bool requires_call() const { return kind == Kind::required || kind == Kind::named; }
};

// Reads "auto" or "", "none", "required", or the name of one of the tools, which are those of read_tools. An unknown
// name is an error that lists the known ones.
Result<ToolChoice> parse_tool_choice(const std::string& text, const nlohmann::ordered_json& tools);

// Makes `options` keep the answer to a call, where one is required: one or several of any tool, or one of that which is
// named. An answer that must have another form too is an error.
Result<void> apply_tool_choice(const ToolChoice& choice, const nlohmann::ordered_json& tools, ToolFormat format,
                               const Tokenizer& tokenizer, GenerateOptions& options);

}  // namespace nanomind
