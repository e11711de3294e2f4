// SPDX-License-Identifier: Apache-2.0
// nanomind watch: looks through a camera again and again, and asks a model when the picture has changed.
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/draft_options.h"
#include "cli/models.h"
#include "cli/picture_files.h"
#include "cli/quantity.h"
#include "cli/request.h"
#include "cli/seeing_model.h"
#include "media/picture_difference.h"

namespace nanomind {
namespace {

struct WatchFlags {
  std::vector<std::string> words;  // [MODEL] question
  EngineFlags engine;
  AnswerFlags answer;
  std::string camera = "camera:";
  std::string every = "5s";
  double threshold = 3;  // gray levels; about what a person makes who stands at a door in a wide picture
  int64_t count = 0;     // looks; 0: without end
  bool json = false;
  bool verbose = false;
};

// One look through the camera.
struct Look {
  std::string time;
  std::optional<double> difference;  // from the picture that was asked about last; none of the first
  bool changed = false;
  std::string text;  // the answer, where it changed
};

// Local time as RFC 3339 has it: 2026-11-30T08:15:00+00:00.
std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[40];
  std::string result(text, std::strftime(text, sizeof text, "%FT%T%z", &local));
  if (result.size() > 2) result.insert(result.size() - 2, ":");
  return result;
}

// Words with one space between them.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

class Watch {
 public:
  Watch(const Context& context, const WatchFlags& flags, std::string question, Engine& engine, Session& session,
        GenerateOptions options)
      : context_(context),
        flags_(flags),
        question_(std::move(question)),
        engine_(engine),
        session_(session),
        options_(std::move(options)) {}

  // Until the camera has no more pictures, `flags.count` looks are done, or `stop` ends it.
  Result<void> run(Camera& camera, std::chrono::milliseconds every, StoppingInterrupt& stop) {
    auto next = std::chrono::steady_clock::now();
    for (int64_t looks = 0; flags_.count == 0 || looks < flags_.count; ++looks) {
      stop.sleep_until(next);
      if (ends(stop)) return {};
      next = std::max(next + every, std::chrono::steady_clock::now());  // what took longer is not made up for
      const auto look = take(camera, stop);
      if (!look && ends(stop)) return {};
      if (!look) return std::unexpected(look.error());
      if (!*look || ends(stop)) return {};
      write(**look);
    }
    return {};
  }

 private:
  bool ends(const StoppingInterrupt& stop) const { return stop.requested() || context_.out.failed(); }

  // Passes over what cannot be read, if there is anything else.
  Result<std::optional<Frame>> next_frame(Camera& camera, StoppingInterrupt& stop) {
    for (;;) {
      auto frame = camera.take(stop.interrupt().flag());
      if (frame) {
        if (!*frame && !seen_any_ && damaged_) return std::unexpected(*damaged_);
        seen_any_ = true;
        return frame;
      }
      if (frame.error().code != ErrorCode::corrupt) return frame;
      context_.log.warning(frame.error().message);
      damaged_ = frame.error();
    }
  }

  Result<std::optional<Look>> take(Camera& camera, StoppingInterrupt& stop) {
    const auto frame = TRY(next_frame(camera, stop));
    if (!frame) return std::nullopt;
    Look look{.time = timestamp(), .difference = {}, .changed = true, .text = {}};
    const Thumbnail seen = thumbnail(frame->image);
    if (asked_about_) {
      look.difference = difference(*asked_about_, seen);
      look.changed = *look.difference > flags_.threshold;
    }
    if (look.changed) {
      look.text = TRY(ask(frame->file, stop));
      asked_about_ = seen;
    }
    return look;
  }

  Result<std::string> ask(std::span<const std::byte> picture, StoppingInterrupt& stop) {
    auto messages = conversation(flags_.answer.system, question_);
    const SeenPicture seen = TRY(engine_.see(picture, picture_detail(flags_.answer)));
    messages.back().pictures = prompts({&seen, 1});
    GenerateOptions options = options_;
    const ChatPrompt prompt =
        TRY(chat_prompt(engine_, messages, {.tools = {}, .thinking = {}}, flags_.answer, options));
    const Generation generation =
        TRY(generate_answer(context_, session_, prompt.tokens, std::move(options), stop.interrupt()));
    if (flags_.verbose) context_.console.note(statistics(generation, engine_.info()));
    return one_line(generation.text);
  }

  void write(const Look& look) const {
    if (flags_.json) {
      const nlohmann::ordered_json json = {
          {"time", look.time},
          {"changed", look.changed},
          {"difference", look.difference ? nlohmann::ordered_json(*look.difference) : nlohmann::ordered_json()},
          {"text", look.changed ? nlohmann::ordered_json(look.text) : nlohmann::ordered_json()}};
      context_.out.write(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    } else if (look.changed) {
      context_.out.write(look.time + "\t");
      context_.out.write_answer(look.text);
      context_.out.write("\n");
    }
  }

  const Context& context_;
  const WatchFlags& flags_;
  std::string question_;
  Engine& engine_;
  Session& session_;
  GenerateOptions options_;
  std::optional<Thumbnail> asked_about_;
  std::optional<Error> damaged_;  // why a picture was passed over
  bool seen_any_ = false;
};

Result<void> run(const Context& context, WatchFlags& flags) {
  if (flags.verbose) context.console.set_verbosity(Verbosity::verbose);
  TRY(check(flags.answer.sampling.sampler));
  const auto every = TRY(parse_duration(flags.every));
  const Request request = TRY(split_words(context, "watch", flags.words));
  if (!request.question) {
    return fail(ErrorCode::invalid_argument,
                "There is no question. Give one in quotes, as in: nanomind watch \"Is somebody at the door?\"");
  }
  const auto camera = TRY(open_named_camera(context, flags.camera));  // before what takes long
  const LocatedModel model = TRY(
      locate_seeing_model(context, request.model, flags.engine,
                          {.command = "watch", .options = {"--camera", flags.camera}, .question = *request.question}));
  use_vision(model, flags.engine);
  const auto engine = TRY(load_engine(context, model, flags.engine));
  if (engine->chat_template() == nullptr)
    return fail(ErrorCode::invalid_argument, "Pictures need a model with a chat template.");
  GenerateOptions options = TRY(generate_options(flags.answer, engine->tokenizer()));
  const Draft draft = TRY(load_draft(context, flags.answer.draft, flags.engine, *engine));
  options.speculation = draft.options;
  const auto session = TRY(engine->open_session(session_options(flags.answer)));
  context.log.info(fmt::format("Watching {}, every {}. Ctrl-C ends.", camera->description(), flags.every));
  StoppingInterrupt stop;
  TRY(Watch(context, flags, *request.question, *engine, *session, std::move(options)).run(*camera, every, stop));
  if (stop.requested() && !context.out.failed()) die_of(SIGINT);
  return {};
}

}  // namespace

void add_watch(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<WatchFlags>();
  CLI::App* command = app.add_subcommand("watch", "Ask about what a camera sees, whenever it has changed");
  command->add_option("words", flags->words, "model (default: from the settings or the catalog) and question")
      ->option_text("[MODEL] question");
  command
      ->add_option("--camera", flags->camera,
                   "camera: (the first, and the default), camera:2, camera:/dev/video2 or camera:file:FOLDER")
      ->option_text("NAME");
  command->add_option("--every", flags->every, "how often to look, as 5s (the default), 500ms or 2m")
      ->option_text("TIME");
  command
      ->add_option("--threshold", flags->threshold,
                   "mean difference in gray levels above which the picture has changed (default: 3)")
      ->check(CLI::Range(0.0, 255.0))
      ->option_text("X");
  command->add_option("--count", flags->count, "end after so many looks")->check(CLI::PositiveNumber)->option_text("N");
  command->add_flag("--json", flags->json, "print one JSON object for each look, also where nothing changed");
  command->add_flag("--verbose", flags->verbose, "tell about loading and speed on standard error");
  add_answer_options(*command, flags->answer, context.settings);
  add_engine_options(*command, flags->engine, context.settings, ContextOption::offered);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
