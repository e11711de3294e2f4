// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.h"

#include <fmt/format.h>

#include "cli/quantity.h"

namespace nanomind {

SessionOptions session_options(const AnswerFlags& flags) {
  return {.overflow = flags.when_full == "slide" ? Overflow::slide : Overflow::stop};
}

Result<GenerateOptions> generate_options(const AnswerFlags& flags, const Tokenizer& tokenizer) {
  GenerateOptions options;
  options.sampler = TRY(sampler_options(flags.sampling, tokenizer));
  options.max_tokens = flags.max_tokens;
  options.stop = flags.stop;
  if (flags.ignore_end) options.end_tokens = GenerateOptions::EndTokens::ignore;
  options.constraint = TRY(read_constraint(flags.constraint));
  TRY(check(options));
  return options;
}

Result<ChatPrompt> chat_prompt(const Engine& engine, std::span<const Message> messages, ChatOptions chat,
                               const AnswerFlags& flags, GenerateOptions& options) {
  if (flags.think_budget == 0) chat.thinking = false;
  ChatPrompt prompt = TRY(engine.chat_prompt(messages, chat));
  options.turn_end = prompt.turn_end;
  options.reasoning = prompt.reasoning;
  if (options.reasoning) options.reasoning->budget = flags.think_budget;
  if (!chat.tools.empty()) options.visible = tool_markers(prompt.tool_format);
  return prompt;
}

Result<Generation> generate_answer(const Context& context, Session& session, std::span<const TokenId> prompt,
                                   GenerateOptions options, Interrupt& interrupt) {
  options.cancel = interrupt.flag();
  for (auto* callback : {&options.on_text, &options.on_reasoning}) {
    if (!*callback) continue;
    *callback = [&context, &interrupt, show = std::move(*callback)](std::string_view text) {
      show(text);
      if (context.out.failed()) interrupt.request();
    };
  }
  return session.generate(prompt, options);
}

std::vector<Message> conversation(const std::string& system, const std::string& question) {
  std::vector<Message> messages;
  if (!system.empty()) messages.push_back({.role = "system", .content = system});
  messages.push_back({.role = "user", .content = question});
  return messages;
}

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::end_of_text:
    case FinishReason::stop_string: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context_full: return "context_full";
    case FinishReason::cancelled: return "cancelled";
  }
  return "";
}

double tokens_per_second(int64_t tokens, double ms) { return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0; }

std::string statistics(const Generation& generation, const EngineInfo& info) {
  const auto sampled = static_cast<int64_t>(generation.tokens.size());
  return fmt::format(
      "prompt   {} tokens in {:.0f} ms ({:.1f} tok/s), {} more were cached{}\n"
      "answer   {} tokens{}{} in {:.0f} ms ({:.1f} tok/s), ended by {}\n"
      "model    {} {}, {} parameters, loaded in {:.0f} ms{}\n"
      "memory   weights {}, context {} ({} tokens in {}), work {}\n"
      "device   {}",
      generation.prompt_tokens, generation.prompt_ms, tokens_per_second(generation.prompt_tokens, generation.prompt_ms),
      generation.cached_tokens,
      generation.dropped_tokens > 0 ? fmt::format(", {} were forgotten to make room", generation.dropped_tokens) : "",
      sampled, generation.reasoning_tokens > 0 ? fmt::format(" ({} of thinking)", generation.reasoning_tokens) : "",
      generation.drafted_tokens > 0
          ? fmt::format(" ({} of {} guesses were right)", generation.accepted_tokens, generation.drafted_tokens)
          : "",
      generation.decode_ms, tokens_per_second(sampled, generation.decode_ms), name(generation.reason),
      info.architecture, info.name, info.parameters, info.load_ms, info.packed_now ? " (packing included)" : "",
      format_bytes(info.weight_bytes), format_bytes(info.kv_bytes), info.context, info.kv_type,
      format_bytes(info.activation_bytes), info.device);
}

std::string forgotten_note(const Generation& generation, const EngineInfo& info) {
  return fmt::format("(the context of {} tokens was full; {} old ones were forgotten, as --when-full slide says)",
                     info.context, generation.dropped_tokens);
}

std::string context_full_advice(const EngineInfo& info) {
  if (info.context < info.trained_context) {
    return fmt::format("The context of {} tokens is full. Start with a larger one: --ctx {}.", info.context,
                       std::min(info.context * 2, info.trained_context));
  }
  return fmt::format("The context of {} tokens is full, and the model was made for no more.", info.context);
}

}  // namespace nanomind
