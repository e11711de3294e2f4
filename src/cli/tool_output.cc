// SPDX-License-Identifier: Apache-2.0
#include "cli/tool_output.h"

#include <fmt/format.h>

#include <utility>

#include "base/mapped_file.h"
#include "text/json_call.h"

namespace nanomind {
namespace {

using Json = nlohmann::ordered_json;

// Whether the tool's schema says that a parameter is a text.
bool takes_text(const Json& tools, std::string_view name, std::string_view parameter) {
  for (const Json& tool : tools) {
    const Json& function = function_of(tool);
    if (function["name"] != name) continue;
    const auto pointer = Json::json_pointer("/parameters/properties") / std::string(parameter) / "type";
    return function.contains(pointer) && function[pointer] == "string";
  }
  return false;
}

}  // namespace

const Json& function_of(const Json& tool) { return tool.contains("function") ? tool["function"] : tool; }

Result<Json> read_tools(const std::string& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  // As a text first, because that bounds the nesting.
  Json tools = is_json(text) ? Json::parse(text, nullptr, false) : Json();
  const auto refuse = [&](std::string_view why) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format(R"({}: {}. Write a list such as [{{"name": "f", "description": "...", "parameters": {{...}}}}].)",
                    path, why));
  };
  if (!tools.is_array() || tools.empty()) return refuse("this is no JSON list of tools");
  for (const Json& tool : tools) {
    if (!tool.is_object() || !function_of(tool).is_object() || !function_of(tool).contains("name") ||
        !function_of(tool)["name"].is_string()) {
      return refuse("a tool has no name");
    }
  }
  return tools;
}

ToolCallOptions tool_call_options(const Json& tools, ToolFormat format) {
  ToolCallOptions options{.format = format, .names = {}, .takes_text = {}};
  for (const Json& tool : tools) options.names.push_back(function_of(tool)["name"]);
  options.takes_text = [tools](std::string_view name, std::string_view parameter) {
    return takes_text(tools, name, parameter);
  };
  return options;
}

ToolOutput::ToolOutput(ToolCallOptions options, OnText on_text, OnCall on_call)
    : parser_(std::move(options)), on_text_(std::move(on_text)), on_call_(std::move(on_call)) {}

void ToolOutput::take(const std::vector<ToolEvent>& events) {
  for (const ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::text:
        text_ += event.text;
        if (on_text_) on_text_(event.text);
        break;
      case ToolEvent::Kind::call:
        name_ = event.text;
        arguments_.clear();
        break;
      case ToolEvent::Kind::arguments: arguments_ += event.text; break;
      case ToolEvent::Kind::end:
      case ToolEvent::Kind::cut: {
        Json arguments = Json::parse(arguments_, nullptr, false);
        if (arguments.is_discarded()) arguments = arguments_;
        calls_.push_back({{"name", name_}, {"arguments", std::move(arguments)}});
        if (on_call_) on_call_(calls_.back());
        break;
      }
    }
  }
}

}  // namespace nanomind
