// SPDX-License-Identifier: Apache-2.0
// nanomind pack: write a model's packed weights now, so that its first use is as quick as all others.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/quantity.h"

namespace nanomind {
namespace {

struct PackFlags {
  std::string model;
  EngineFlags engine;
};

Result<void> run(const Context& context, PackFlags& flags) {
  const LocatedModel model = TRY(locate_model(context, flags.model));
  use_vision(model, flags.engine);
  const auto engine = TRY(load_engine(context, model, flags.engine));
  const EngineInfo& info = engine->info();
  context.console.note(fmt::format("{} {}: {} in {:.1f} s", model.name,
                                   info.packed_now ? "is packed now" : "was packed already",
                                   format_bytes(info.weight_bytes), info.load_ms / 1000));
  return {};
}

}  // namespace

void add_pack(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<PackFlags>();
  CLI::App* command = app.add_subcommand("pack", "Prepare a model's weights for quick starts");
  command->add_option("model", flags->model, "model (default: the catalog's)")->option_text("[MODEL]");
  add_engine_options(*command, flags->engine, context.settings, ContextOption::fixed);
  flags->engine.context = 256;  // the cache is not what this is about
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
