// SPDX-License-Identifier: Apache-2.0
// From what a person types as MODEL to a file, and from the file to an engine.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "cli/model_options.h"
#include "hub/model_name.h"
#include "hub/pull.h"
#include "runtime/engine.h"

namespace nanomind {

struct LocatedModel {
  std::string name;                     // for people
  std::filesystem::path path;           // the GGUF
  std::filesystem::path packed_folder;  // for its side files
  std::filesystem::path vision;         // what makes it see; empty: nothing that is known
};

// `text`, or where it is empty the settings' model or the catalog's default.
Result<std::string> chosen_model(const Context& context, const std::string& text, const Catalog& catalog);

// `text` as of chosen_model. A model that is not here is pulled, which is announced on standard error.
Result<LocatedModel> locate_model(const Context& context, const std::string& text);

// Lets the engine see with the model's vision file, unless the flags name another or want none.
void use_vision(const LocatedModel& model, EngineFlags& flags);

// Whether `text` is a model's name rather than a question: known to the catalog or the store, an existing file, an
// address, or in the form org/repo. Fails where it looks like a misspelt name.
Result<bool> names_model(const Context& context, const std::string& text);

// Fetches `name` with progress on standard error. Ctrl-C stops and keeps what has come.
Result<PulledModel> pull_model(const Context& context, const ModelName& name, const Catalog& catalog,
                               const Store& store, PullOptions::Check check = PullOptions::Check::if_changed);

// What of a model of the catalog is not here yet.
uint64_t missing_bytes(const CatalogEntry& entry, const Store& store);

Result<std::unique_ptr<Engine>> load_engine(const Context& context, const LocatedModel& model,
                                            const EngineFlags& flags);

}  // namespace nanomind
