// SPDX-License-Identifier: Apache-2.0
// nanomind run: one answer, streamed to standard output; a chat when there is no question.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/draft_options.h"
#include "cli/input.h"
#include "cli/models.h"
#include "cli/picture_files.h"
#include "cli/request.h"
#include "cli/seeing_model.h"
#include "cli/tool_choice.h"
#include "cli/tool_output.h"

namespace nanomind {
namespace {

struct RunFlags {
  std::vector<std::string> words;  // [MODEL] [question]
  EngineFlags engine;
  AnswerFlags answer;
  bool raw = false;
  bool special = false;
  bool json = false;
  bool verbose = false;
  int logprobs = -1;
  bool show_thinking = false;
  std::vector<std::string> images;  // as see_pictures takes them
  std::string tools;                // a file
  std::string tool_choice;          // empty: as `auto`
};

// Adds what is piped in to the question.
Result<void> add_input(const Context& context, const RunFlags& flags, Request& request) {
  auto input = TRY(read_piped_input(context));
  if (!input) return {};
  if (!flags.raw) input->erase(input->find_last_not_of("\r\n") + 1);
  if (input->empty() && request.question) return {};
  if (input->empty()) {
    return fail(ErrorCode::invalid_argument, "Standard input was empty, and no question was given.");
  }
  request.question = request.question ? *request.question + "\n\n" + *input : *input;
  return {};
}

Result<ChatPrompt> make_prompt(const Context& context, const RunFlags& flags, Engine& engine,
                               const std::string& question, std::span<const SeenPicture> pictures,
                               const std::string& tools, GenerateOptions& options) {
  const bool raw = flags.raw || engine.chat_template() == nullptr;
  if (!raw) {
    auto messages = conversation(flags.answer.system, question);
    messages.back().pictures = prompts(pictures);
    return chat_prompt(engine, messages, {.tools = tools, .thinking = {}}, flags.answer, options);
  }
  if (!tools.empty())
    return fail(ErrorCode::invalid_argument, "Tools need a model with a chat template, and no --raw.");
  if (!flags.raw) {
    context.console.note(
        "This is a base model without a chat template: it continues the text rather than answering it.");
  }
  if (!flags.answer.system.empty()) context.console.note("The system message is left out: it needs a chat template.");
  const auto control = flags.special ? ControlTokens::recognise : ControlTokens::as_text;
  auto prompt = engine.tokenizer().encode(question, control, Beginning::add_if_model_does);
  if (prompt.empty()) return fail(ErrorCode::invalid_argument, "The text is empty; there is nothing to continue.");
  return ChatPrompt{.tokens = std::move(prompt)};
}

nlohmann::ordered_json to_json(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  return {{"id", entry.token}, {"token", tokenizer.bytes(entry.token)}, {"logprob", entry.logprob}};
}

// One entry per token, with the likeliest at its place.
nlohmann::ordered_json to_json(const std::vector<LogprobRow>& rows, const Tokenizer& tokenizer) {
  auto list = nlohmann::ordered_json::array();
  for (const LogprobRow& row : rows) {
    auto entry = to_json(row.chosen, tokenizer);
    entry["top_logprobs"] = nlohmann::ordered_json::array();
    for (const TokenLogprob& top : row.top) entry["top_logprobs"].push_back(to_json(top, tokenizer));
    list.push_back(std::move(entry));
  }
  return list;
}

// Where what the model looks at lies in the original: the point (x, y) of the original is at ((x - left) * scale_x,
// (y - top) * scale_y) of a tile.
nlohmann::ordered_json to_json(const SeenPicture& picture) {
  auto tiles = nlohmann::ordered_json::array();
  for (const TilePlace& place : picture.tiles)
    tiles.push_back({{"left", place.left}, {"top", place.top}, {"scale_x", place.scale_x}, {"scale_y", place.scale_y}});
  return {{"width", picture.size.width},
          {"height", picture.size.height},
          {"tokens", picture.rows},
          {"tiles", std::move(tiles)}};
}

nlohmann::ordered_json to_json(const Generation& generation, size_t prompt_tokens, const Engine& engine,
                               const std::string& model) {
  const EngineInfo& info = engine.info();
  const auto sampled = static_cast<int64_t>(generation.tokens.size());
  nlohmann::ordered_json json = {
      {"model", model},
      {"text", generation.text},
      {"ids", generation.tokens},
      {"prompt_tokens", prompt_tokens},
      {"completion_tokens", sampled},
      {"context", info.context},
      {"finish_reason", name(generation.reason)},
      {"timings",
       {{"load_ms", info.load_ms},
        {"prompt_ms", generation.prompt_ms},
        {"prompt_tok_s", tokens_per_second(generation.prompt_tokens, generation.prompt_ms)},
        {"decode_ms", generation.decode_ms},
        {"decode_tok_s", tokens_per_second(sampled, generation.decode_ms)}}},
  };
  if (generation.drafted_tokens > 0)
    json["draft"] = {{"guessed", generation.drafted_tokens}, {"accepted", generation.accepted_tokens}};
  if (generation.dropped_tokens > 0) json["dropped_tokens"] = generation.dropped_tokens;
  if (!generation.logprobs.empty()) json["logprobs"] = to_json(generation.logprobs, engine.tokenizer());
  if (generation.reasoning_tokens > 0) {
    json["reasoning"] = generation.reasoning;
    json["reasoning_tokens"] = generation.reasoning_tokens;
  }
  return json;
}

std::string line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Writes the answer while it comes; calls of tools are lines of JSON.
class AnswerWriter {
 public:
  AnswerWriter(const Context& context, const RunFlags& flags, const nlohmann::ordered_json& tools, ToolFormat format)
      : context_(context),
        flags_(flags),
        tools_(
            tool_call_options(tools, tools.empty() ? ToolFormat::none : format),
            [this](std::string_view text) { write(text); },
            [this](const nlohmann::ordered_json& call) { write_call(call); }) {}

  void listen(GenerateOptions& options) {
    options.on_text = [this](std::string_view text) { tools_.push(text); };
    if (!flags_.show_thinking) return;
    options.on_reasoning = [this](std::string_view text) {
      context_.console.thought(text);
      thinking_ = true;
    };
  }
  void finish() {
    tools_.finish();
    end_thinking();
    if (!flags_.json && (!flags_.raw || context_.out.is_terminal())) end_line();
  }
  const ToolOutput& output() const { return tools_; }

 private:
  void end_thinking() {
    if (std::exchange(thinking_, false)) context_.console.note("");
  }
  void end_line() {
    if (!at_line_start_) context_.out.write("\n");
    at_line_start_ = true;
  }
  void write(std::string_view text) {
    end_thinking();
    if (flags_.json || text.empty()) return;
    context_.out.write_answer(text);
    wrote_ = true;
    at_line_start_ = text.ends_with('\n');
  }
  void write_call(const nlohmann::ordered_json& call) {
    end_thinking();
    if (flags_.json) return;
    if (wrote_) end_line();
    context_.out.write(line(call));
    wrote_ = true;
    at_line_start_ = true;
  }

  const Context& context_;
  const RunFlags& flags_;
  ToolOutput tools_;
  bool thinking_ = false;
  bool at_line_start_ = false;  // an answer without text is an empty line
  bool wrote_ = false;
};

Result<void> answer(const Context& context, const RunFlags& flags, const LocatedModel& model, Engine& engine,
                    const std::string& question) {
  GenerateOptions options = TRY(generate_options(flags.answer, engine.tokenizer()));
  options.logprobs = flags.logprobs;
  auto tools = nlohmann::ordered_json::array();
  if (!flags.tools.empty()) tools = TRY(read_tools(flags.tools));
  const ToolChoice choice = TRY(parse_tool_choice(flags.tool_choice, tools));
  if (choice.kind == ToolChoice::Kind::none) tools.clear();
  if (!flags.images.empty() && (flags.raw || engine.chat_template() == nullptr))
    return fail(ErrorCode::invalid_argument, "Pictures need a model with a chat template, and no --raw.");
  const auto pictures = TRY(see_pictures(context, engine, flags.images, picture_detail(flags.answer)));
  const ChatPrompt prompt =
      TRY(make_prompt(context, flags, engine, question, pictures, tools.empty() ? "" : tools.dump(), options));
  if (!tools.empty() && prompt.tool_format == ToolFormat::none) {
    return fail(
        ErrorCode::unsupported,
        fmt::format("The chat template of {} knows no tools, so the model would not see them. Choose a model that "
                    "was made for tools, for example qwen2.5-coder-1.5b.",
                    model.name));
  }
  TRY(apply_tool_choice(choice, tools, prompt.tool_format, engine.tokenizer(), options));
  const Draft draft = TRY(load_draft(context, flags.answer.draft, flags.engine, engine));
  options.speculation = draft.options;
  const auto session = TRY(engine.open_session(session_options(flags.answer)));
  Interrupt interrupt(Interrupt::Again::ends_program);
  AnswerWriter writer(context, flags, tools, prompt.tool_format);
  writer.listen(options);
  auto generated = generate_answer(context, *session, prompt.tokens, options, interrupt);
  if (!generated && generated.error().code == ErrorCode::invalid_argument && choice.requires_call()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("The parameters of the tools in {} ask for what calls cannot be kept to. {}", flags.tools,
                            generated.error().message));
  }
  const Generation generation = TRY(std::move(generated));
  writer.finish();
  if (flags.json) {
    auto json = to_json(generation, prompt.tokens.size(), engine, model.name);
    json["text"] = writer.output().text();
    for (const SeenPicture& picture : pictures) json["pictures"].push_back(to_json(picture));
    if (!flags.tools.empty()) json["tool_calls"] = writer.output().calls();
    context.out.write(line(json));
  }
  if (flags.verbose) context.console.note(statistics(generation, engine.info()));
  if (generation.dropped_tokens > 0) context.console.note(forgotten_note(generation, engine.info()));
  if (generation.reason == FinishReason::context_full) {
    context.console.error("The answer is cut off. " + context_full_advice(engine.info()));
  }
  if (interrupt.requested() && !context.out.failed()) die_of(SIGINT);
  return {};
}

Result<LocatedModel> locate(const Context& context, const RunFlags& flags, const Request& request) {
  if (flags.images.empty()) return locate_model(context, request.model);
  PictureQuestion picture{.command = "run", .options = {}, .question = *request.question};
  for (const std::string& image : flags.images) picture.options.insert(picture.options.end(), {"-i", image});
  return locate_seeing_model(context, request.model, flags.engine, picture);
}

Result<void> run(Context& context, RunFlags& flags) {
  if (flags.verbose) context.console.set_verbosity(Verbosity::verbose);
  TRY(check(flags.answer.sampling.sampler));
  if (flags.logprobs >= 0 && !flags.json) {
    return fail(ErrorCode::invalid_argument, "Log-probabilities are part of the JSON: add --json.");
  }
  Request request = TRY(split_words(context, "run", flags.words));
  TRY(add_input(context, flags, request));
  if (!request.question && (flags.raw || flags.json || !input_is_terminal())) {
    return fail(ErrorCode::invalid_argument, "There is no question. Give one in quotes, or pipe a text in.");
  }
  if (!request.question && !flags.images.empty())
    return fail(ErrorCode::invalid_argument, "Ask a question about the picture, or use /image in a chat.");
  const LocatedModel model = TRY(locate(context, flags, request));
  // One answer without a picture needs no eyes.
  if (!request.question || !flags.images.empty()) use_vision(model, flags.engine);
  const auto engine = TRY(load_engine(context, model, flags.engine));
  if (!request.question) return chat(context, *engine, model.name, flags.answer, flags.engine);
  return answer(context, flags, model, *engine, *request.question);
}

}  // namespace

void add_run(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Answer one question, or chat when none is given");
  command->add_option("words", flags->words, "model (default: the catalog's) and question (default: a chat)")
      ->option_text("[MODEL] [\"QUESTION\"]");
  command->add_flag("--raw", flags->raw, "no chat template: continue the text as it is");
  command->add_flag("--special", flags->special,
                    "with --raw: read control tokens such as <|im_end|> as what they stand for");
  command->add_flag("--json", flags->json, "print one JSON object when the answer is complete");
  command->add_option("--logprobs", flags->logprobs, "with --json: log-probabilities, and of the N likeliest tokens")
      ->check(CLI::Range(0, kMostLogprobs))
      ->option_text("N");
  command->add_flag("--show-thinking", flags->show_thinking, "show what the model thinks, on standard error");
  command
      ->add_option("-i,--image", flags->images,
                   "picture to ask about (JPEG, PNG, WebP, GIF, BMP, PPM), or camera: for one of now; again for more")
      ->option_text("FILE")
      ->allow_extra_args(false);
  command->add_option("--tools", flags->tools, "tools that the model may call; calls are printed as lines of JSON")
      ->option_text("FILE");
  command
      ->add_option("--tool-choice", flags->tool_choice,
                   "whether it calls one: none, auto, required, or the name of the one to call (default: auto)")
      ->option_text("CHOICE");
  command->add_flag("--verbose", flags->verbose, "tell about loading and speed on standard error");
  add_answer_options(*command, flags->answer, context.settings);
  add_picture_options(*command, flags->engine, flags->answer);
  add_engine_options(*command, flags->engine, context.settings, ContextOption::offered);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
