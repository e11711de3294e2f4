// SPDX-License-Identifier: Apache-2.0
// nanomind chat: a conversation on the terminal, or with lines from a pipe.
#include <memory>

#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/models.h"

namespace nanomind {
namespace {

struct ChatFlags {
  std::string model;
  EngineFlags engine;
  AnswerFlags answer;
  bool verbose = false;
};

Result<void> run(Context& context, ChatFlags& flags) {
  if (flags.verbose) context.console.set_verbosity(Verbosity::verbose);
  TRY(check(flags.answer.sampling.sampler));
  const LocatedModel model = TRY(locate_model(context, flags.model));
  use_vision(model, flags.engine);
  const auto engine = TRY(load_engine(context, model, flags.engine));
  return chat(context, *engine, model.name, flags.answer, flags.engine);
}

}  // namespace

void add_chat(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model");
  command->add_option("model", flags->model, "model (default: the catalog's)")->option_text("[MODEL]");
  command->add_flag("--verbose", flags->verbose, "tell about loading on standard error");
  add_answer_options(*command, flags->answer, context.settings);
  add_picture_options(*command, flags->engine, flags->answer);
  add_engine_options(*command, flags->engine, context.settings, ContextOption::offered);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
