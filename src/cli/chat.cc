// SPDX-License-Identifier: Apache-2.0
#include "cli/chat.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "cli/answer.h"
#include "cli/chat_commands.h"
#include "cli/draft_options.h"
#include "cli/entry_reader.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/picture_files.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

bool can_edit_lines() {
  const std::string terminal = environment("TERM");
  return input_is_terminal() && !terminal.empty() && terminal != "dumb";
}

// Where the history goes; empty, with a warning, when there can be none.
fs::path history_path(const Context& context) {
  const fs::path& folder = context.folders.state;
  if (folder.empty()) return {};
  std::error_code error;
  if (fs::create_directories(folder, error)) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) {
    context.log.warning(fmt::format("Cannot make the folder {} ({}), so the history will not be kept.", folder.string(),
                                    error.message()));
    return {};
  }
  return folder / "history";
}

class Chat {
 public:
  Chat(const Context& context, Engine& engine, std::unique_ptr<Session> session, const std::string& model,
       const AnswerFlags& flags, GenerateOptions options)
      : context_(context), engine_(engine), session_(std::move(session)), flags_(flags), options_(std::move(options)) {
    state_.conversation.model = model;
    state_.conversation.system = flags.system;
    state_.detail = picture_detail(flags);
  }

  Result<void> run();

 private:
  Result<void> prepare_editor();
  Result<Line> read_line(std::string_view prompt);
  // Whether the chat goes on.
  AfterCommand handle(const std::string& entry);
  Result<void> ask(const std::string& question);
  Result<Generation> generate();
  void tell_why_it_ended(const Generation& generation);
  void tell_what_was_forgotten(const Generation& generation);
  void remember(const std::string& entry);

  const Context& context_;
  Engine& engine_;
  std::unique_ptr<Session> session_;
  AnswerFlags flags_;
  GenerateOptions options_;
  ChatState state_;
  std::optional<LineEditor> editor_;    // absent: plain lines
  std::optional<Interrupt> interrupt_;  // with the editor always, else while answering
};

Result<void> Chat::prepare_editor() {
  if (!can_edit_lines()) return {};
  fs::path history = history_path(context_);
  auto editor = LineEditor::create(history, chat_command_names());
  if (!editor && !history.empty()) {
    context_.log.warning(editor.error().message + " This chat goes on without it.");
    editor = LineEditor::create({}, chat_command_names());
  }
  editor_ = TRY(std::move(editor));
  interrupt_.emplace(Interrupt::Again::is_ignored);
  return {};
}

Result<Line> Chat::read_line(std::string_view prompt) {
  if (editor_) return editor_->read(prompt);
  std::string text;
  if (!std::getline(std::cin, text)) return Line{.kind = Line::Kind::end_of_input, .text = {}};
  if (text.ends_with('\r')) text.pop_back();
  return Line{.kind = Line::Kind::text, .text = std::move(text)};
}

void Chat::remember(const std::string& entry) {
  if (!editor_) return;
  if (auto done = editor_->remember(entry); !done) context_.log.warning(done.error().message);
}

Result<void> Chat::run() {
  TRY(prepare_editor());
  if (editor_) {
    context_.console.note(fmt::format("{}, {} tokens of context. /help lists commands, Ctrl-D leaves.",
                                      state_.conversation.model, engine_.info().context));
  }
  bool leaving = false;
  for (;;) {
    const Line entry = TRY(read_entry([this](std::string_view prompt) { return read_line(prompt); }));
    if (entry.kind == Line::Kind::end_of_input) return {};
    if (entry.kind == Line::Kind::interrupted_at_start) {
      if (std::exchange(leaving, true)) return {};
      context_.console.note("Ctrl-C again, or Ctrl-D, leaves.");
      continue;
    }
    leaving = false;
    if (entry.kind == Line::Kind::interrupted || entry.text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    remember(entry.text);
    if (handle(entry.text) == AfterCommand::leave) return {};
  }
}

AfterCommand Chat::handle(const std::string& entry) {
  if (is_chat_command(entry)) {
    const auto next = run_chat_command(context_, engine_, *session_, entry, state_);
    if (!next) context_.console.error(next.error().message);
    return next.value_or(AfterCommand::go_on);
  }
  if (auto asked = ask(entry); !asked) context_.console.error(asked.error().message);
  return context_.out.failed() ? AfterCommand::leave : AfterCommand::go_on;
}

Result<Generation> Chat::generate() {
  const ChatPrompt prompt = TRY(chat_prompt(engine_, state_.conversation.messages(), {}, flags_, options_));
  bool thinking = false;
  options_.on_reasoning = [&](std::string_view text) {
    thinking = true;
    context_.out.write_thought(text);
  };
  options_.on_text = [&](std::string_view text) {
    if (std::exchange(thinking, false)) context_.out.write_thought("\n\n");
    context_.out.write_answer(text);
  };
  if (!interrupt_) interrupt_.emplace(Interrupt::Again::is_ignored);
  interrupt_->clear();
  auto generation = generate_answer(context_, *session_, prompt.tokens, options_, *interrupt_);
  if (!editor_) {
    const bool interrupted = interrupt_->requested() && !context_.out.failed();
    interrupt_.reset();
    if (interrupted) die_of(SIGINT);
  }
  return generation;
}

Result<void> Chat::ask(const std::string& question) {
  std::vector<Turn>& turns = state_.conversation.turns;
  state_.next.message.role = "user";
  state_.next.message.content = question;
  turns.push_back(std::exchange(state_.next, {}));
  auto generation = generate();
  // Pictures go with their question: the next one shall not fail for them too.
  std::string pictures_gone;
  if (!generation || generation->tokens.empty()) {
    if (!turns.back().pictures.empty()) pictures_gone = " What it was to be about must be shown again, with /image.";
    turns.pop_back();
  }
  if (!generation) {
    Error error = std::move(generation).error();
    if (error.code == ErrorCode::context_full)
      error.message = context_full_advice(engine_.info()) + " /clear forgets the conversation so far.";
    return fail(error.code, error.message + " The question was not taken in." + pictures_gone);
  }
  if (!generation->text.ends_with('\n')) context_.out.write("\n");
  tell_why_it_ended(*generation);
  if (!pictures_gone.empty()) context_.console.note("The question was not taken in." + pictures_gone);
  tell_what_was_forgotten(*generation);
  if (!generation->tokens.empty()) turns.push_back({.message = {.role = "assistant", .content = generation->text}});
  state_.last = std::move(*generation);
  return {};
}

void Chat::tell_why_it_ended(const Generation& generation) {
  if (generation.reason == FinishReason::context_full) {
    context_.console.error("The answer is cut off. " + context_full_advice(engine_.info()) +
                           " /clear forgets the conversation so far.");
  } else if (generation.reason == FinishReason::length) {
    context_.console.note(fmt::format("(stopped after {} tokens, as -n says)", generation.tokens.size()));
  } else if (generation.reason == FinishReason::cancelled && !context_.out.failed()) {
    context_.console.note("(stopped)");
  }
}

// Once, as it goes on from there.
void Chat::tell_what_was_forgotten(const Generation& generation) {
  const bool is_known = state_.last && state_.last->dropped_tokens > 0;
  if (generation.dropped_tokens > 0 && !is_known) context_.console.note(forgotten_note(generation, engine_.info()));
}

}  // namespace

Result<void> chat(const Context& context, Engine& engine, const std::string& model, const AnswerFlags& flags,
                  const EngineFlags& engine_flags) {
  if (engine.chat_template() == nullptr) {
    return fail(ErrorCode::unsupported,
                fmt::format("{0} is a base model without a chat template: it continues text and cannot chat. Use: "
                            "nanomind run --raw {0} \"Once upon a time\"",
                            model));
  }
  GenerateOptions options = TRY(generate_options(flags, engine.tokenizer()));
  const Draft draft = TRY(load_draft(context, flags.draft, engine_flags, engine));
  options.speculation = draft.options;
  return Chat(context, engine, TRY(engine.open_session(session_options(flags))), model, flags, std::move(options))
      .run();
}

}  // namespace nanomind
