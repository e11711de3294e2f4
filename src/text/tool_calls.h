// SPDX-License-Identifier: Apache-2.0
// Finds the calls of tools in what a model writes, while it writes. Each family of models has its own way to write
// them; which one follows from the chat template.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nanomind {

enum class ToolFormat {
  none,
  hermes,   // <tool_call>{"name": "f", "arguments": {...}}</tool_call>; Qwen 2.5 and 3, Hermes, SmolLM
  xml,      // <tool_call><function=f><parameter=a>1</parameter></function></tool_call>; Qwen3-Coder
  llama,    // {"name": "f", "parameters": {...}}, perhaps after <|python_tag|>; several are separated by ;
  gemma,    // a fenced block of tool_code with f(a=1), or of JSON
  mistral,  // [TOOL_CALLS][{"name": "f", "arguments": {...}}], or [TOOL_CALLS]f[ARGS]{...}
  lfm,      // <|tool_call_start|>[f(a=1)]<|tool_call_end|>
};

// By the markers that occur in the text of a chat template; none when it knows no tools.
ToolFormat find_tool_format(std::string_view chat_template);

// Markers that may be control tokens, which the stream must give out as text (GenerateOptions::visible).
std::vector<std::string> tool_markers(ToolFormat format);

struct ToolEvent {
  enum class Kind {
    text,       // `text` of the answer
    call,       // a call of the tool named `text` begins
    arguments,  // a piece of its arguments; all pieces together are one JSON object
    end,        // the call is complete
    cut,        // the call ended before its arguments did
  };
  Kind kind = Kind::text;
  size_t index = 0;  // of the call in this answer, from 0
  std::string text;
  bool operator==(const ToolEvent&) const = default;
};

struct ToolCallOptions {
  ToolFormat format = ToolFormat::none;
  // Names of the tools that there are. Calls of others stay text; empty: all names are taken.
  std::vector<std::string> names;
  // Whether a parameter of a tool is a text, for formats that do not write quotes around it. May be empty: then what
  // reads as JSON is taken as that.
  std::function<bool(std::string_view tool, std::string_view parameter)> takes_text;
};

// Events do not depend on where the pieces are cut, but for the cuts of `text` and `arguments` themselves. What turns
// out to be no call is given out as text, markers included. White space beside calls is dropped.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallOptions options);
  ~ToolCallParser();
  ToolCallParser(ToolCallParser&&) noexcept;
  ToolCallParser& operator=(ToolCallParser&&) noexcept;

  std::vector<ToolEvent> push(std::string_view text);
  // The end of the answer.
  std::vector<ToolEvent> finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanomind
