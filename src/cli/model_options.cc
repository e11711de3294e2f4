// SPDX-License-Identifier: Apache-2.0
#include "cli/model_options.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace nanomind {

void add_engine_options(CLI::App& command, EngineFlags& flags, const Settings& settings, ContextOption context) {
  flags = {.device = settings.device,
           .isa = settings.isa,
           .threads = settings.threads,
           .context = settings.context,
           .outputs = 16,
           .precision = "fast",
           .memory = {}};
  const std::string group = "Engine";
  command.add_option("-t,--threads", flags.threads, "threads that compute (default: what suits the machine)")
      ->check(CLI::Range(0, 1024))
      ->option_text("N")
      ->group(group);
  if (context == ContextOption::offered) {
    command.add_option("--ctx", flags.context, "tokens that a conversation may hold (default: up to 8192)")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
        ->option_text("N")
        ->group(group);
  }
  command.add_option("--memory", flags.memory, "most memory to use, like 2G or 512M (default: what is free)")
      ->option_text("SIZE")
      ->group(group);
  command
      .add_option("--precision", flags.precision,
                  "of reading prompts: fast, or high at about three quarters of the speed")
      ->check(CLI::IsMember({"fast", "high"}))
      ->option_text("fast|high")
      ->group(group);
  command.add_option("--device", flags.device, "where to compute (default: cpu)")->option_text("NAME")->group(group);
  command.add_option("--isa", flags.isa, "instruction set to use (default: the widest that runs)")
      ->option_text("NAME")
      ->group(group);
}

void add_answer_options(CLI::App& command, AnswerFlags& flags, const Settings& settings) {
  flags = {.sampler = settings.sampler, .max_tokens = settings.max_tokens, .system = settings.system};
  SamplerOptions& sampler = flags.sampler;
  command.add_option("-n,--max-tokens", flags.max_tokens, "stop after N tokens (default: when the answer ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 31))
      ->option_text("N");
  command.add_option("--system", flags.system, "system message for the conversation")->option_text("TEXT");
  const std::string group = "Sampling";
  command.add_option("--temp", sampler.temperature, "temperature; 0: always the likeliest token (default: 0.7)")
      ->option_text("X")
      ->group(group);
  command.add_option("--top-k", sampler.top_k, "choose among the K likeliest tokens; 0: all (default: 40)")
      ->option_text("K")
      ->group(group);
  command.add_option("--top-p", sampler.top_p, "choose among the likeliest that add up to P (default: 0.95)")
      ->option_text("P")
      ->group(group);
  command.add_option("--min-p", sampler.min_p, "drop tokens below P of the likeliest (default: 0.05)")
      ->option_text("P")
      ->group(group);
  command
      .add_option("--repeat-penalty", sampler.repetition_penalty, "make recent tokens less likely; 1: off (default: 1)")
      ->option_text("X")
      ->group(group);
  command.add_option("--seed", sampler.seed, "the same seed draws the same answer (default: random)")
      ->option_text("N")
      ->group(group);
}

}  // namespace nanomind
