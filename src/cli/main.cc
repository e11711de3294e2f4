// SPDX-License-Identifier: Apache-2.0
// The program: puts the pieces together, lets a command run, and turns its result into an exit code:
// 0 done, 1 failed, 2 called wrongly.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "hub/model_name.h"

namespace nanomind {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kAbout =
    "nanomind answers with language models on this machine.\n"
    "  nanomind run \"Why is the sky blue?\"     one answer\n"
    "  nanomind run                            a chat";

// A file that is opened later must not become standard input, output or error by accident. Output that is closed stays
// unwritable, so that the loss is noticed.
void occupy_standard_files() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) != fd) std::_Exit(kFailed);
  }
}

int exit_code(const Error& error) { return error.code == ErrorCode::invalid_argument ? kUsage : kFailed; }

// A word in the command's place that is none: the message names the closest.
std::optional<std::string> unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::ranges::find(names, argv[1]) != names.end()) return std::nullopt;
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto close = closest_name(argv[1], views);
  return fmt::format("There is no command '{}'.{} `nanomind --help` lists them all.", argv[1],
                     close ? fmt::format(" Did you mean '{}'?", *close) : "");
}

void add_help(CLI::App& app, Context& context, Action& action) {
  auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Tell about a command");
  command->add_option("command", *topic, "name of a command")->option_text("[COMMAND]");
  command->callback([&, topic] {
    action = [&, topic]() -> Result<void> {
      const auto found =
          app.get_subcommands([&](const CLI::App* candidate) { return candidate->get_name() == *topic; });
      CLI::App* described = topic->empty() ? &app : found.empty() ? nullptr : found.front();
      if (described == nullptr)
        return fail(ErrorCode::invalid_argument, fmt::format("There is no command '{}'.", *topic));
      context.out.write(described->help());
      return {};
    };
  });
}

// Only a system message may be empty: there the settings may have one, which this takes away. Elsewhere an empty value
// is what a shell variable leaves that is not set, and must not pass for an option that was not given.
void refuse_empty_values(CLI::App& app) {
  const auto empty = [](const std::string& value) {
    return value.empty() ? std::string("the value is empty; give one, or leave the option out") : std::string();
  };
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      if (option->nonpositional() && option->get_name() != "--system") option->check(empty);
    }
  }
}

void add_commands(CLI::App& app, Context& context, Action& action) {
  app.set_version_flag("--version", "nanomind " NANOMIND_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  for (const auto add :
       {add_run, add_chat, add_watch, add_pull, add_list, add_show, add_rm, add_convert, add_quantize, add_join,
        add_pack, add_tokenize, add_perplexity, add_embed, add_rerank, add_bench, add_doctor, add_help}) {
    add(app, context, action);
  }
  refuse_empty_values(app);
}

// "--name=", which the parser would complete with the next word.
std::optional<std::string> option_without_value(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return fmt::format("{} has no value. Give one, or leave the option out.", word);
  }
  return std::nullopt;
}

// Parses the command line; an exit code when that is all there is to do.
std::optional<int> parse(CLI::App& app, const Context& context, int argc, char** argv) {
  if (argc < 2) {
    context.console.note(app.help());
    return kUsage;
  }
  for (const auto& message : {unknown_command(app, argc, argv), option_without_value(argc, argv)}) {
    if (!message) continue;
    context.console.error(*message);
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    context.out.write((chosen.empty() ? app : *chosen.front()).help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    context.out.write(std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    context.console.error(fmt::format("{}. See: nanomind {}--help", error.what(),
                                      chosen.empty() ? "" : chosen.front()->get_name() + " "));
    return kUsage;
  }
  return std::nullopt;
}

int finish(const Context& context, int code) {
  if (context.out.reader_gone()) die_of(SIGPIPE);
  if (const auto written = context.out.status(); !written) {
    context.console.error(written.error().message);
    return kFailed;
  }
  return code;
}

int run_program(int argc, char** argv) {
  occupy_standard_files();
  std::signal(SIGPIPE, SIG_IGN);  // writes report it, and finish() obeys it
  Output out(STDOUT_FILENO);
  Console console(STDERR_FILENO);
  Context context{.out = out, .console = console, .log = console.log(), .folders = user_folders(), .settings = {}};
  const auto config = context.folders.config.empty() ? context.folders.config : context.folders.config / "config.toml";
  auto settings = load_settings(config, environment, context.log);
  if (!settings) {
    console.error(settings.error().message);
    return kUsage;
  }
  context.settings = std::move(*settings);

  CLI::App app(kAbout, "nanomind");
  Action action;
  add_commands(app, context, action);
  if (const auto code = parse(app, context, argc, argv)) return finish(context, *code);
  const Result<void> result = action();
  if (!result) console.error(result.error().message);
  return finish(context, result ? kDone : exit_code(result.error()));
}

}  // namespace
}  // namespace nanomind

// Nothing of ours throws; what a library throws past its wrapper (memory is gone) ends here.
int main(int argc, char** argv) {
  try {
    return nanomind::run_program(argc, argv);
  } catch (const std::exception& error) {
    nanomind::Console(STDERR_FILENO)
        .error(fmt::format("{}. If memory is short, choose a smaller model or --ctx.", error.what()));
    return nanomind::kFailed;
  }
}
