// SPDX-License-Identifier: Apache-2.0
// nanomind join: one file of a language model and its vision file.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/file_work.h"
#include "cli/quantity.h"
#include "convert/join.h"
#include "runtime/vision_match.h"

namespace nanomind {
namespace {

struct JoinFlags {
  std::string model, vision, output;
};

Result<void> run(const Context& context, const JoinFlags& flags) {
  const auto path = [&](const std::string& text) {
    return std::filesystem::absolute(expand_home(text, context.folders.home));
  };
  const std::filesystem::path target = path(flags.output);
  TRY(check_target(path(flags.model), target));
  TRY(check_target(path(flags.vision), target));
  const uint64_t bytes =
      TRY(join_files(path(flags.model), path(flags.vision), target,
                     [](const GgufFile& model, const GgufFile& vision) { return check_match(model, vision); }));
  context.console.note(fmt::format("{}: {}", target.string(), format_bytes(bytes)));
  return {};
}

}  // namespace

void add_join(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<JoinFlags>();
  CLI::App* command = app.add_subcommand("join", "Make one file of a model and its vision file");
  command->add_option("model", flags->model, "GGUF file of the language model")->required()->option_text("MODEL");
  command->add_option("vision", flags->vision, "GGUF file of its tower and projector")
      ->required()
      ->option_text("MMPROJ");
  command->add_option("output", flags->output, "file to write")->required()->option_text("OUT");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
