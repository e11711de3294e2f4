// SPDX-License-Identifier: Apache-2.0
// nanomind pull: fetch a model into the store.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/quantity.h"

namespace nanomind {
namespace {

struct PullFlags {
  std::string model;
  bool verify = false;
};

Result<void> run(const Context& context, const PullFlags& flags) {
  const Catalog catalog = TRY(open_catalog(context));
  const Store store = TRY(open_store(context));
  std::string typed = flags.model.empty() ? context.settings.model : flags.model;
  if (typed.empty() && catalog.default_entry() != nullptr) typed = catalog.default_entry()->name;
  const ModelName name = TRY(parse_model_name(typed));
  const auto check = flags.verify ? PullOptions::Check::always : PullOptions::Check::if_changed;
  const PulledModel pulled = TRY(pull_model(context, name, catalog, store, check));
  uint64_t bytes = pulled.model.bytes;
  std::string files = pulled.model.path.string();
  if (!pulled.model.vision.empty()) {
    std::error_code ignored;
    bytes += std::filesystem::file_size(pulled.model.vision, ignored);
    files += " and " + pulled.model.vision.filename().string();
  }
  context.console.note(fmt::format("{} {} ({}): {}", pulled.model.name,
                                   pulled.already_there ? "is already here" : "is here", format_bytes(bytes), files));
  return {};
}

}  // namespace

void add_pull(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<PullFlags>();
  CLI::App* command =
      app.add_subcommand("pull", "Fetch a model: a catalog name, org/repo[:quant], an address, or a file");
  command->add_option("model", flags->model, "model (default: the catalog's)")->option_text("[MODEL]");
  command->add_flag("--verify", flags->verify,
                    "read a model that is here and compare its hash; repair what is damaged");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
