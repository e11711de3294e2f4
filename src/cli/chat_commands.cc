// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_commands.h"

#include <fmt/format.h>

#include <utility>

#include "cli/answer.h"
#include "cli/picture_files.h"
#include "cli/quantity.h"

namespace nanomind {
namespace {

struct Call {
  const Context& context;
  Engine& engine;
  Session& session;
  const std::string& argument;
  ChatState& state;
};

struct Command {
  const char* name;
  const char* argument;  // as help shows it
  const char* help;
  Result<AfterCommand> (*run)(const Call& call);
};

std::string help_text();

Result<std::filesystem::path> file_argument(const Call& call, const char* command) {
  if (call.argument.empty()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("/{} needs a file name, as in: /{} talk.json", command, command));
  }
  return expand_home(call.argument, call.context.folders.home);
}

Result<AfterCommand> run_help(const Call& call) {
  call.context.console.note(help_text());
  return AfterCommand::go_on;
}

Result<AfterCommand> run_system(const Call& call) {
  std::string& system = call.state.conversation.system;
  if (call.argument.empty()) {
    call.context.console.note(system.empty() ? "There is no system message. /system TEXT sets one."
                                             : "System message: " + system);
    return AfterCommand::go_on;
  }
  system = call.argument;
  call.context.console.note("The system message holds from the next question on.");
  return AfterCommand::go_on;
}

Result<AfterCommand> run_clear(const Call& call) {
  call.state.conversation.turns.clear();
  call.state.next = {};
  call.state.last.reset();
  call.context.console.note("The conversation starts anew.");
  return AfterCommand::go_on;
}

// What the model has read, beside the conversation's file: it belongs to one model, and is large.
std::filesystem::path session_path(std::filesystem::path conversation) { return conversation += ".session"; }

Result<AfterCommand> run_save(const Call& call) {
  const auto path = TRY(file_argument(call, "save"));
  TRY(save_conversation(call.state.conversation, path));
  const auto side = session_path(path);
  std::error_code ignored;
  if (call.state.conversation.turns.empty()) {
    std::filesystem::remove(side, ignored);
    call.context.console.note(fmt::format("Saved to {}.", path.string()));
    return AfterCommand::go_on;
  }
  if (const auto saved = call.session.save(side); !saved) {
    call.context.console.note(
        fmt::format("Saved to {}; what the model has read could not be: {} /load will read it "
                    "again.",
                    path.string(), saved.error().message));
    return AfterCommand::go_on;
  }
  call.context.console.note(fmt::format("Saved to {}, and what the model has read to {} ({}).", path.string(),
                                        side.filename().string(),
                                        format_bytes(std::filesystem::file_size(side, ignored))));
  return AfterCommand::go_on;
}

Result<void> show_again(Engine& engine, const std::filesystem::path& path, Conversation& conversation) {
  for (size_t i = 0; i < conversation.turns.size(); ++i) {
    Turn& turn = conversation.turns[i];
    for (const KeptPicture& kept : turn.pictures) {
      auto seen = engine.see(kept.file, kept.detail);
      if (!seen)
        return fail(seen.error().code,
                    fmt::format("{}: a picture of question {}: {}", path.string(), i / 2 + 1, seen.error().message));
      turn.message.pictures.push_back(std::move(seen->prompt));
    }
  }
  return {};
}

// Without its session a conversation is read again, with the next question.
void restore_session(const Call& call, const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  if (const auto restored = call.session.restore(path); !restored)
    call.context.console.note(restored.error().message + " The conversation will be read again.");
}

Result<AfterCommand> run_load(const Call& call) {
  const auto path = TRY(file_argument(call, "load"));
  Conversation loaded = TRY(load_conversation(path));
  TRY(show_again(call.engine, path, loaded));
  if (!loaded.model.empty() && loaded.model != call.state.conversation.model) {
    call.context.console.note(
        fmt::format("This was a conversation with {}; {} continues it.", loaded.model, call.state.conversation.model));
  }
  loaded.model = call.state.conversation.model;
  restore_session(call, session_path(path));
  const size_t questions = loaded.turns.size() / 2;
  call.state = {.conversation = std::move(loaded), .detail = call.state.detail, .next = {}, .last = {}};
  call.context.console.note(fmt::format("Loaded {} question{} and answer{}.", questions, questions == 1 ? "" : "s",
                                        questions == 1 ? "" : "s"));
  return AfterCommand::go_on;
}

Result<AfterCommand> run_image(const Call& call) {
  if (call.argument.empty())
    return fail(ErrorCode::invalid_argument,
                "/image needs a file name or a camera, as in: /image photo.jpg, /image camera:");
  Turn& next = call.state.next;
  PictureDetail detail = call.state.detail;
  if (!next.pictures.empty()) detail.company = PictureDetail::Company::several;
  auto picture = TRY(show_picture(call.context, call.engine, call.argument, detail));
  if (next.pictures.size() == 1) {  // which was shown as the only one
    next.message.pictures[0] = TRY(call.engine.see(next.pictures[0].file, detail)).prompt;
    next.pictures[0].detail = detail;
  }
  next.pictures.push_back({.file = std::move(picture.file), .detail = detail});
  next.message.pictures.push_back(std::move(picture.seen.prompt));
  call.context.console.note("The next question is about this picture.");
  return AfterCommand::go_on;
}

Result<AfterCommand> run_stats(const Call& call) {
  if (call.state.last) {
    call.context.console.note(statistics(*call.state.last, call.engine.info()));
  } else {
    call.context.console.note("There is no answer yet to tell about.");
  }
  return AfterCommand::go_on;
}

Result<AfterCommand> run_exit(const Call&) { return AfterCommand::leave; }

constexpr Command kCommands[] = {
    {"help", "", "this list", run_help},
    {"system", "TEXT", "set the system message; without TEXT: show it", run_system},
    {"clear", "", "forget the conversation", run_clear},
    {"image", "FILE", "show a picture with the next question; /image camera: takes one now", run_image},
    {"save", "FILE", "write the conversation to a file, and what the model has read beside it", run_save},
    {"load", "FILE", "go on with a conversation from a file", run_load},
    {"stats", "", "tokens, speed and memory of the last answer", run_stats},
    {"exit", "", "leave (also Ctrl-D, or Ctrl-C twice)", run_exit},
};

std::string help_text() {
  std::string text;
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<16}{}\n", fmt::format("/{} {}", command.name, command.argument), command.help);
  }
  return text +
         "Ctrl-C stops an answer. For several lines paste them, end a line with \\, or put them between \"\"\" and "
         "\"\"\".\n"
         "A question that begins with / needs a space before it.";
}

}  // namespace

bool is_chat_command(std::string_view entry) {
  return entry.starts_with('/') && entry.find('\n') == std::string_view::npos;
}

Result<AfterCommand> run_chat_command(const Context& context, Engine& engine, Session& session, std::string_view entry,
                                      ChatState& state) {
  const size_t end = std::min(entry.find_first_of(" \t"), entry.size());
  const std::string_view name = entry.substr(1, end - 1);
  const size_t start = entry.find_first_not_of(" \t", end);
  std::string argument(start == std::string_view::npos ? "" : entry.substr(start));
  argument.erase(argument.find_last_not_of(" \t") + 1);
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run({context, engine, session, argument, state});
  }
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("There is no command /{}; there are {}. A question that begins with / needs a space before it.", name,
                  chat_command_names()));
}

std::string chat_command_names() {
  std::string names;
  for (const Command& command : kCommands) names += fmt::format("{}/{}", names.empty() ? "" : " ", command.name);
  return names;
}

}  // namespace nanomind
