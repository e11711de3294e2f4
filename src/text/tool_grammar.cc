// SPDX-License-Identifier: Apache-2.0
#include "text/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/json_call.h"

namespace nanomind {
namespace {

// A tool whose schema was read.
struct Tool {
  std::string name;
  OrderedJson schema;
};

bool has_any(const OrderedJson& object, std::span<const std::string_view> keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return object.contains(key); });
}

Result<Tool> read_tool(const CallableTool& given) {
  // Looked at as text first, because that bounds the nesting.
  OrderedJson schema = OrderedJson::object({{"properties", OrderedJson::object()}});
  if (!given.parameters.empty()) {
    schema = is_json(given.parameters) ? OrderedJson::parse(given.parameters, nullptr, false) : OrderedJson();
    if (!schema.is_object()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("The parameters of the tool {} must be a JSON schema that is an object, nested sensibly.",
                              given.name));
    }
  }
  constexpr std::string_view kElsewhere[] = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"};
  if (schema.contains("properties") && !schema.contains("additionalProperties") && !has_any(schema, kElsewhere)) {
    schema["additionalProperties"] = false;
  }
  if (!has_any(schema, kElsewhere)) schema["type"] = "object";
  return Tool{.name = given.name, .schema = std::move(schema)};
}

std::string text(std::string_view text) { return encode_json_string(text); }

std::string json_value(OrderedJson schema) {
  if (!schema.is_object()) schema = OrderedJson::object();  // `true`: anything
  // Options of the grammar's compiler; what a schema says of its own by this name is no part of JSON Schema.
  schema["x-guidance"] = {
      {"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}, {"coerce_one_of", true}};
  return "%json " + schema.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto in_name = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; };
  return !name.empty() && letter(name[0]) && std::ranges::all_of(name, in_name);
}

// One parameter of a tool that is written parameter by parameter.
struct Parameter {
  std::string name;
  const OrderedJson* schema;
  bool required;
};

// The parameters, where nothing in the schema concerns several of them at once; null otherwise.
std::optional<std::vector<Parameter>> parameters_of(const Tool& tool) {
  constexpr std::array<std::string_view, 7> kPlain = {"type",  "properties", "required",   "additionalProperties",
                                                      "title", "$schema",    "description"};
  for (const auto& [key, value] : tool.schema.items()) {
    if (std::ranges::find(kPlain, key) == kPlain.end()) return std::nullopt;
  }
  const auto properties = tool.schema.find("properties");
  if (properties == tool.schema.end() || !properties->is_object() || !is_identifier(tool.name)) return std::nullopt;
  if (properties->dump(-1, ' ', false, OrderedJson::error_handler_t::replace).find("\"$ref\"") != std::string::npos) {
    return std::nullopt;
  }
  std::vector<std::string> required;
  if (const auto list = tool.schema.find("required"); list != tool.schema.end()) {
    if (!list->is_array()) return std::nullopt;
    for (const OrderedJson& name : *list) {
      if (!name.is_string() || !properties->contains(name.get<std::string>())) return std::nullopt;
      required.push_back(name);
    }
  }
  std::vector<Parameter> parameters;
  for (const auto& [name, schema] : properties->items()) {
    if (!is_identifier(name) || (!schema.is_object() && schema != true)) return std::nullopt;
    parameters.push_back({name, &schema, std::ranges::find(required, name) != required.end()});
  }
  return parameters;
}

// Texts without quotes: any, or one of a few; null when the schema asks for more than that.
std::optional<std::string> bare_text(const OrderedJson& schema, std::string_view end) {
  constexpr std::array<std::string_view, 6> kKnown = {"type", "title", "description", "default", "examples", "enum"};
  for (const auto& [key, value] : schema.items()) {
    if (std::ranges::find(kKnown, key) == kKnown.end()) return std::nullopt;
  }
  const auto choices = schema.find("enum");
  if (choices == schema.end()) return fmt::format("[suffix={}]: /(?s:.*)/", text(end));
  std::string rule;
  for (const OrderedJson& choice : *choices) {
    if (!choice.is_string()) return std::nullopt;
    const auto& word = choice.get_ref<const std::string&>();
    if (word.find("</") != std::string::npos || word.find('\n') != std::string::npos) return std::nullopt;
    rule += fmt::format("{} {}", rule.empty() ? "" : " |", text(word));
  }
  return rule.empty() ? std::nullopt : std::optional(fmt::format(": ({} ) {}", rule, text(end)));
}

// Atoms of Lark around calls; "" where there is nothing.
struct Frame {
  std::string open, before_call, between, after_call, close;
};

class LarkWriter {
 public:
  LarkWriter(std::span<const Tool> tools, ToolFormat format, const Tokenizer& tokenizer)
      : tools_(tools), format_(format), tokenizer_(tokenizer) {
    for (const Tool& tool : tools_) parameters_.push_back(parameters_of(tool));
    // Mistral's newer models have a token between name and arguments.
    names_first_ = format_ == ToolFormat::mistral && marker("[ARGS]").starts_with('<') &&
                   std::ranges::all_of(tools_, [](const Tool& tool) { return is_identifier(tool.name); });
  }

  std::string write(CallCount count) {
    const Frame frame = make_frame();
    const std::string more =
        count == CallCount::some ? fmt::format(" ({} call){{0,{}}}", frame.between, kMostCalls - 1) : "";
    rule("start", fmt::format(": {} call{} {}", frame.open, more, frame.close));
    // Calls written parameter by parameter and calls in JSON do not mix in one list.
    const bool bare = std::ranges::all_of(std::views::iota(size_t{0}, tools_.size()), [&](size_t i) {
      return format_ == ToolFormat::xml ? can_be_xml(i) : format_ == ToolFormat::lfm && parameters_[i].has_value();
    });
    std::string calls;
    for (size_t i = 0; i < tools_.size(); ++i) {
      calls += fmt::format("{}call_{}", i == 0 ? "" : " | ", i);
      if (!bare) {
        write_json_call(i);
      } else if (format_ == ToolFormat::xml) {
        write_xml_call(i);
      } else {
        write_python_call(i);
      }
    }
    rule("call", fmt::format(": {} ({}) {}", frame.before_call, calls, frame.after_call));
    return std::move(lark_);
  }

 private:
  void rule(std::string_view name, std::string_view body) { lark_ += fmt::format("{}{}\n", name, body); }

  // Control tokens are no text to the grammar.
  std::string marker(std::string_view spelling) const {
    const auto ids = tokenizer_.encode(spelling, ControlTokens::recognise, Beginning::omit);
    const bool control = ids.size() == 1 && tokenizer_.bytes(ids[0]).empty() && tokenizer_.piece(ids[0]) == spelling;
    return control ? fmt::format("<[{}]>", ids[0]) : text(spelling);
  }

  // Where a new line parts calls it may also end them: it is one token with the character before, and a model that
  // chose that token did not choose to call again.
  Frame make_frame() const {
    switch (format_) {
      case ToolFormat::none: break;
      case ToolFormat::hermes:
      case ToolFormat::xml:
        return {.open = {},
                .before_call = marker("<tool_call>") + " " + text("\n"),
                .between = text("\n"),
                .after_call = text("\n") + " " + marker("</tool_call>"),
                .close = text("\n") + "?"};
      case ToolFormat::llama:
        return {.open = {}, .before_call = {}, .between = text("; "), .after_call = {}, .close = {}};
      case ToolFormat::gemma:
        return {.open = {},
                .before_call = text("```json\n"),
                .between = text("\n"),
                .after_call = text("\n```"),
                .close = text("\n") + "?"};
      case ToolFormat::mistral:
        if (names_first_) {
          return {.open = {}, .before_call = marker("[TOOL_CALLS]"), .between = {}, .after_call = {}, .close = {}};
        }
        return {.open = marker("[TOOL_CALLS]") + " " + text("["),
                .before_call = {},
                .between = text(", "),
                .after_call = {},
                .close = text("]")};
      case ToolFormat::lfm:
        return {.open = marker("<|tool_call_start|>") + " " + text("["),
                .before_call = {},
                .between = text(", "),
                .after_call = {},
                .close = text("]") + " " + marker("<|tool_call_end|>")};
    }
    return {};
  }

  void write_json_call(size_t i) {
    rule(fmt::format("args_{}", i), ": " + json_value(tools_[i].schema));
    if (names_first_) {
      return rule(fmt::format("call_{}", i), fmt::format(": {} {} args_{}", text(tools_[i].name), marker("[ARGS]"), i));
    }
    const bool parameters = format_ == ToolFormat::llama || format_ == ToolFormat::gemma;
    const std::string start =
        fmt::format(R"({{"name": {}, "{}": )", text(tools_[i].name), parameters ? "parameters" : "arguments");
    rule(fmt::format("call_{}", i), fmt::format(": {} args_{} {}", text(start), i, text("}")));
  }

  static constexpr std::string_view kXmlEnd = "\n</parameter>\n";

  bool can_be_xml(size_t i) const {
    return parameters_[i] && std::ranges::all_of(*parameters_[i], [](const Parameter& parameter) {
             return !is_text(parameter) || bare_text(*parameter.schema, kXmlEnd);
           });
  }

  static bool is_text(const Parameter& parameter) {
    return parameter.schema->is_object() && parameter.schema->value("type", OrderedJson()) == "string";
  }

  void write_xml_call(size_t i) {
    std::string body = fmt::format(": {}", text(fmt::format("<function={}>\n", tools_[i].name)));
    for (size_t j = 0; j < parameters_[i]->size(); ++j) {
      const Parameter& parameter = (*parameters_[i])[j];
      rule(fmt::format("value_{}_{}", i, j), is_text(parameter) ? *bare_text(*parameter.schema, kXmlEnd)
                                                                : fmt::format(": json_{}_{} {}", i, j, text(kXmlEnd)));
      if (!is_text(parameter)) rule(fmt::format("json_{}_{}", i, j), ": " + json_value(*parameter.schema));
      body += fmt::format(" ({} value_{}_{}){}", text(fmt::format("<parameter={}>\n", parameter.name)), i, j,
                          parameter.required ? "" : "?");
    }
    rule(fmt::format("call_{}", i), body + " " + text("</function>"));
  }

  // The rule first_i_j writes what follows of call i from parameter j on when nothing was written yet, more_i_j the
  // same after a parameter, with the comma.
  void write_python_call(size_t i) {
    const std::vector<Parameter>& parameters = *parameters_[i];
    rule(fmt::format("call_{}", i), fmt::format(": {} first_{}_0 {}", text(tools_[i].name + "("), i, text(")")));
    for (size_t j = 0; j < parameters.size(); ++j) {
      rule(fmt::format("json_{}_{}", i, j), ": " + json_value(*parameters[j].schema));
      for (const auto& [kind, comma] : {std::pair{"first", ""}, std::pair{"more", ", "}}) {
        const std::string skip = parameters[j].required ? "" : fmt::format(" | {}_{}_{}", kind, i, j + 1);
        rule(fmt::format("{}_{}_{}", kind, i, j),
             fmt::format(": {} json_{}_{} more_{}_{}{}", text(comma + parameters[j].name + "="), i, j, i, j + 1, skip));
      }
    }
    for (const char* kind : {"first", "more"}) rule(fmt::format("{}_{}_{}", kind, i, parameters.size()), ": \"\"");
  }

  std::span<const Tool> tools_;
  ToolFormat format_;
  const Tokenizer& tokenizer_;
  std::vector<std::optional<std::vector<Parameter>>> parameters_;  // of each tool
  bool names_first_ = false;
  std::string lark_;
};

}  // namespace

Result<std::string> tool_grammar(std::span<const CallableTool> tools, ToolFormat format, CallCount count,
                                 const Tokenizer& tokenizer) {
  if (format == ToolFormat::none) {
    return fail(ErrorCode::unsupported, "The model knows no way to write calls of tools, so none can be asked of it.");
  }
  if (tools.empty()) return fail(ErrorCode::invalid_argument, "There is no tool that could be called.");
  std::vector<Tool> read;
  for (const CallableTool& tool : tools) read.push_back(TRY(read_tool(tool)));
  return LarkWriter(read, format, tokenizer).write(count);
}

}  // namespace nanomind
