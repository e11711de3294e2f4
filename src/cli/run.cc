// SPDX-License-Identifier: Apache-2.0
// nanomind run: one answer, streamed to standard output; a chat when there is no question.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/models.h"

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
};

struct Request {
  std::string model;                    // empty: the default
  std::optional<std::string> question;  // absent: a chat
};

Result<Request> split_words(const Context& context, const std::vector<std::string>& words) {
  if (words.size() > 2) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("run takes MODEL and one question, but there are {} words. Put the question in quotes.",
                            words.size()));
  }
  if (words.size() == 2) return Request{.model = words[0], .question = words[1]};
  if (words.empty()) return Request{};
  if (TRY(names_model(context, words[0]))) return Request{.model = words[0], .question = {}};
  return Request{.model = {}, .question = words[0]};
}

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

Result<std::vector<TokenId>> make_prompt(const Context& context, const RunFlags& flags, const Engine& engine,
                                         const std::string& question) {
  const bool raw = flags.raw || engine.chat_template() == nullptr;
  if (!raw) return engine.chat_prompt(conversation(flags.answer.system, question));
  if (!flags.raw) {
    context.console.note(
        "This is a base model without a chat template: it continues the text rather than answering it.");
  }
  const auto control = flags.special ? ControlTokens::recognise : ControlTokens::as_text;
  auto prompt = engine.tokenizer().encode(question, control, Beginning::add_if_model_does);
  if (prompt.empty()) return fail(ErrorCode::invalid_argument, "The text is empty; there is nothing to continue.");
  return prompt;
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

std::string to_json(const Generation& generation, size_t prompt_tokens, const Engine& engine,
                    const std::string& model) {
  const EngineInfo& info = engine.info();
  const auto sampled = static_cast<int64_t>(generation.tokens.size());
  nlohmann::ordered_json json = {
      {"model", model},
      {"text", generation.text},
      {"ids", generation.tokens},
      {"prompt_tokens", prompt_tokens},
      {"completion_tokens", sampled},
      {"finish_reason", name(generation.reason)},
      {"timings",
       {{"load_ms", info.load_ms},
        {"prompt_ms", generation.prompt_ms},
        {"prompt_tok_s", tokens_per_second(generation.prompt_tokens, generation.prompt_ms)},
        {"decode_ms", generation.decode_ms},
        {"decode_tok_s", tokens_per_second(sampled, generation.decode_ms)}}},
  };
  if (!generation.logprobs.empty()) json["logprobs"] = to_json(generation.logprobs, engine.tokenizer());
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<void> answer(const Context& context, const RunFlags& flags, const LocatedModel& model, Engine& engine,
                    const std::string& question) {
  GenerateOptions options = TRY(generate_options(flags.answer, engine.tokenizer()));
  options.logprobs = flags.logprobs;
  const auto prompt = TRY(make_prompt(context, flags, engine, question));
  const auto session = TRY(engine.open_session());
  Interrupt interrupt(Interrupt::Again::ends_program);
  const auto streaming = flags.json ? Streaming::none : Streaming::to_output;
  const Generation generation = TRY(generate_answer(context, *session, prompt, options, interrupt, streaming));
  if (flags.json) {
    context.out.write(to_json(generation, prompt.size(), engine, model.name));
  } else if ((!flags.raw || context.out.is_terminal()) && !generation.text.ends_with('\n')) {
    context.out.write("\n");
  }
  if (flags.verbose) context.console.note(statistics(generation, engine.info()));
  if (generation.reason == FinishReason::context_full) {
    context.console.error("The answer is cut off. " + context_full_advice(engine.info()));
  }
  if (interrupt.requested() && !context.out.failed()) die_of(SIGINT);
  return {};
}

Result<void> run(Context& context, RunFlags& flags) {
  if (flags.verbose) context.console.set_verbosity(Verbosity::verbose);
  TRY(check(flags.answer.sampling.sampler));
  if (flags.logprobs >= 0 && !flags.json) {
    return fail(ErrorCode::invalid_argument, "Log-probabilities are part of the JSON: add --json.");
  }
  Request request = TRY(split_words(context, flags.words));
  TRY(add_input(context, flags, request));
  if (!request.question && (flags.raw || flags.json || !input_is_terminal())) {
    return fail(ErrorCode::invalid_argument, "There is no question. Give one in quotes, or pipe a text in.");
  }
  const LocatedModel model = TRY(locate_model(context, request.model));
  const auto engine = TRY(load_engine(context, model, flags.engine));
  if (!request.question) return chat(context, *engine, model.name, flags.answer);
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
  command->add_flag("--verbose", flags->verbose, "tell about loading and speed on standard error");
  add_answer_options(*command, flags->answer, context.settings);
  add_engine_options(*command, flags->engine, context.settings, ContextOption::offered);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
