// SPDX-License-Identifier: Apache-2.0
// nanomind rm: remove models from the store, with their packed weights and unfinished downloads.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/quantity.h"

namespace nanomind {
namespace {

Result<void> run(const Context& context, const std::vector<std::string>& models) {
  const Catalog catalog = TRY(open_catalog(context));
  const Store store = TRY(open_store(context));
  std::vector<ModelName> names;
  for (const std::string& model : models) {
    names.push_back(TRY(parse_model_name(model)));
    if (std::holds_alternative<PathName>(names.back()) && model.find('/') != std::string::npos) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format(
              "{} is a path, and rm removes models of the store by name. Remove a file of yours with rm itself.",
              model));
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const RemovedModel removed = TRY(remove_stored(names[i], catalog, store));
    context.console.note(
        fmt::format("Removed {}; {} are free again.{}", models[i], format_bytes(removed.bytes),
                    removed.kept_for.empty() ? "" : " Its language model stays for " + removed.kept_for + "."));
  }
  return {};
}

}  // namespace

void add_rm(CLI::App& app, Context& context, Action& action) {
  auto models = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("rm", "Remove models from this machine");
  command->add_option("models", *models, "names")->required()->option_text("MODEL...");
  command->callback([&context, &action, models] { action = [&context, models] { return run(context, *models); }; });
}

}  // namespace nanomind
