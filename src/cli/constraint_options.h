// SPDX-License-Identifier: Apache-2.0
// Options that give an answer its form: a JSON schema or a grammar.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "runtime/generation.h"

namespace nanomind {

// As typed; at most one is not empty.
struct ConstraintFlags {
  std::string json_schema;  // a file, or the schema itself
  std::string grammar;      // a file, whose name tells its kind
  std::string gbnf;         // a file
  std::string lark;         // a file
  std::string regex;        // the expression itself
};

void add_constraint_options(CLI::App& command, ConstraintFlags& flags);

// Reads the files.
Result<std::optional<Constraint>> read_constraint(const ConstraintFlags& flags);

}  // namespace nanomind
