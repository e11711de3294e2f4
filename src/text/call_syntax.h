// SPDX-License-Identifier: Apache-2.0
// Reads calls of tools that are not written as JSON: as Python, [f(a=1, b="x")], and as XML,
// <function=f><parameter=a>1</parameter></function>. For tool_calls.cc.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nanomind {

struct WrittenCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// One call, or a list of them. Values are Python literals. Null when it is anything else.
std::optional<std::vector<WrittenCall>> read_python_calls(std::string_view text);

// One function or several. `takes_text` as in ToolCallOptions. Null when it is anything else.
std::optional<std::vector<WrittenCall>> read_xml_calls(
    std::string_view text, const std::function<bool(std::string_view, std::string_view)>& takes_text);

}  // namespace nanomind
