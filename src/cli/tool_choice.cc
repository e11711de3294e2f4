// SPDX-License-Identifier: Apache-2.0
#include "cli/tool_choice.h"

#include <fmt/format.h>

#include <vector>

#include "cli/tool_output.h"
#include "text/tool_grammar.h"

namespace nanomind {

Result<ToolChoice> parse_tool_choice(const std::string& text, const nlohmann::ordered_json& tools) {
  using Kind = ToolChoice::Kind;
  if (text.empty()) return ToolChoice{};
  if (tools.empty()) {
    return fail(ErrorCode::invalid_argument, "There are no tools to choose from: give them with --tools FILE.");
  }
  if (text == "auto") return ToolChoice{};
  if (text == "none") return ToolChoice{.kind = Kind::none, .name = {}};
  if (text == "required") return ToolChoice{.kind = Kind::required, .name = {}};
  std::string names;
  for (const auto& tool : tools) {
    const std::string name = function_of(tool)["name"];
    if (name == text) return ToolChoice{.kind = Kind::named, .name = text};
    names += (names.empty() ? "" : ", ") + name;
  }
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("There is no tool named '{}'; there are: {}. --tool-choice also takes none, auto and required.", text,
                  names));
}

Result<void> apply_tool_choice(const ToolChoice& choice, const nlohmann::ordered_json& tools, ToolFormat format,
                               const Tokenizer& tokenizer, GenerateOptions& options) {
  using Kind = ToolChoice::Kind;
  if (!choice.requires_call()) return {};
  if (options.constraint) {
    return fail(ErrorCode::invalid_argument,
                "An answer that must be a call of a tool has the form of one: leave out --json-schema, --grammar, "
                "--gbnf, --lark and --regex.");
  }
  std::vector<CallableTool> callable;
  for (const auto& tool : tools) {
    const auto& function = function_of(tool);
    const auto& name = function["name"].get_ref<const std::string&>();
    if (choice.kind == Kind::named && name != choice.name) continue;
    const auto parameters = function.find("parameters");
    const bool some = parameters != function.end() && !parameters->is_null();
    callable.push_back(
        {.name = name,
         .parameters = some ? parameters->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) : ""});
  }
  const CallCount count = choice.kind == Kind::named ? CallCount::one : CallCount::some;
  options.constraint =
      Constraint{.kind = Constraint::Kind::lark, .source = TRY(tool_grammar(callable, format, count, tokenizer))};
  return {};
}

}  // namespace nanomind
