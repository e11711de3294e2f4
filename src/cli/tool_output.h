// SPDX-License-Identifier: Apache-2.0
// The tools that a model may call, and its calls as JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tool_calls.h"

namespace nanomind {

// A list of tools as OpenAI's interface has it; also of the inner objects alone. Errors name the file.
Result<nlohmann::ordered_json> read_tools(const std::string& path);

// The part of a tool that has its name, description and parameters.
const nlohmann::ordered_json& function_of(const nlohmann::ordered_json& tool);

// What a parser must know of them.
ToolCallOptions tool_call_options(const nlohmann::ordered_json& tools, ToolFormat format);

// Parts an answer into its text and its calls.
class ToolOutput {
 public:
  using OnText = std::function<void(std::string_view)>;
  using OnCall = std::function<void(const nlohmann::ordered_json&)>;
  // The functions are called as text comes and when a call is complete; both may be empty.
  ToolOutput(ToolCallOptions options, OnText on_text, OnCall on_call);

  void push(std::string_view text) { take(parser_.push(text)); }
  void finish() { take(parser_.finish()); }
  const std::string& text() const { return text_; }
  // {"name", "arguments"}; arguments that are no JSON (the call was cut) are a text.
  const nlohmann::ordered_json& calls() const { return calls_; }

 private:
  void take(const std::vector<ToolEvent>& events);

  ToolCallParser parser_;
  OnText on_text_;
  OnCall on_call_;
  std::string text_;
  std::string name_;
  std::string arguments_;
  nlohmann::ordered_json calls_ = nlohmann::ordered_json::array();
};

}  // namespace nanomind
