// SPDX-License-Identifier: Apache-2.0
#include "cli/constraint_options.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <system_error>

#include "base/mapped_file.h"
#include "text/json_call.h"

namespace nanomind {
namespace {

Result<std::string> read_file(const std::string& path) {
  const MappedFile file = TRY(MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Result<Constraint> from_file(Constraint::Kind kind, const std::string& path) {
  return Constraint{.kind = kind, .source = TRY(read_file(path))};
}

// A schema is an object or a truth value; no file is called that. Other JSON may be a file's name, or else a mistake.
Result<Constraint> from_schema(const std::string& typed) {
  const size_t start = typed.find_first_not_of(" \t\r\n");
  const bool is_schema = start != std::string::npos && (typed[start] == '{' || typed == "true" || typed == "false");
  if (is_schema) return Constraint{.kind = Constraint::Kind::json_schema, .source = typed};
  std::error_code error;
  if (is_json(typed) && !std::filesystem::exists(typed, error)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("--json-schema {}: a JSON schema is an object, or true, and there is no file of this name.",
                            typed));
  }
  return from_file(Constraint::Kind::json_schema, typed);
}

Result<Constraint> from_grammar(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".gbnf") return from_file(Constraint::Kind::gbnf, path);
  if (extension == ".lark") return from_file(Constraint::Kind::lark, path);
  return fail(ErrorCode::invalid_argument,
              fmt::format("The name {} does not end in .gbnf or .lark. Say which it is: --gbnf {} or --lark {}", path,
                          path, path));
}

}  // namespace

void add_constraint_options(CLI::App& command, ConstraintFlags& flags) {
  const std::string group = "Form of the answer";
  command.add_option("--json-schema", flags.json_schema, "answer in JSON that meets a schema (oneOf counts as anyOf)")
      ->option_text("FILE|JSON")
      ->group(group);
  command.add_option("--grammar", flags.grammar, "answer by a grammar, .gbnf or .lark")
      ->option_text("FILE")
      ->group(group);
  command.add_option("--gbnf", flags.gbnf, "by a grammar in GBNF, whatever the file's name")
      ->option_text("FILE")
      ->group(group);
  command.add_option("--lark", flags.lark, "by a grammar in Lark")->option_text("FILE")->group(group);
  command.add_option("--regex", flags.regex, "by a regular expression")->option_text("EXPRESSION")->group(group);
}

Result<std::optional<Constraint>> read_constraint(const ConstraintFlags& flags) {
  int given = 0;
  for (const std::string* typed : {&flags.json_schema, &flags.grammar, &flags.gbnf, &flags.lark, &flags.regex}) {
    if (!typed->empty()) ++given;
  }
  if (given > 1) {
    return fail(ErrorCode::invalid_argument,
                "Give one of --json-schema, --grammar, --gbnf, --lark and --regex: an answer has one form.");
  }
  if (!flags.json_schema.empty()) return TRY(from_schema(flags.json_schema));
  if (!flags.grammar.empty()) return TRY(from_grammar(flags.grammar));
  if (!flags.gbnf.empty()) return TRY(from_file(Constraint::Kind::gbnf, flags.gbnf));
  if (!flags.lark.empty()) return TRY(from_file(Constraint::Kind::lark, flags.lark));
  if (!flags.regex.empty()) return Constraint{.kind = Constraint::Kind::regex, .source = flags.regex};
  return std::nullopt;
}

}  // namespace nanomind
