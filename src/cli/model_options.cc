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
           .kv_type = std::string(kv_type_name(settings.kv_type)),
           .vision = {},
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
  command
      .add_option("--kv-type", flags.kv_type,
                  "how keys and values are kept: q8_0 takes half the memory, q4_0 a quarter or, where keys have biases "
                  "and stay in q8_0, two fifths (default: f16)")
      ->check(CLI::IsMember({"f32", "f16", "q8_0", "q4_0"}))
      ->option_text("f16|q8_0|q4_0")
      ->group(group);
  CLI::Option* vision = command
                            .add_option("--mmproj", flags.vision,
                                        "the model's vision file (default: what it has, or what lies beside it)")
                            ->option_text("FILE")
                            ->group(group);
  command.add_flag("--no-mmproj", flags.no_vision, "use no vision file, even where there is one")
      ->excludes(vision)
      ->group(group);
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

void add_picture_options(CLI::App& command, EngineFlags& engine, AnswerFlags& answer) {
  const std::string group = "Pictures";
  command
      .add_option("--image-tiles", answer.image_tiles,
                  "look at a picture whole and in at most N parts: fewer take less time and context, and show less "
                  "detail; 0: only the whole (default: as the model was trained)")
      ->check(CLI::Range(0, 64))
      ->option_text("N")
      ->group(group);
  command
      .add_flag("--lean", engine.lean,
                "free the memory of what sees after each look; the next new picture takes longer")
      ->group(group);
  command
      .add_flag("--no-picture-cache", engine.no_picture_cache,
                "do not keep on disk what was made of pictures, nor use it")
      ->group(group);
}

void add_answer_options(CLI::App& command, AnswerFlags& flags, const Settings& settings) {
  flags.max_tokens = settings.max_tokens;
  flags.system = settings.system;
  flags.think_budget = settings.think_budget;
  command.add_option("-n,--max-tokens", flags.max_tokens, "stop after N tokens (default: when the answer ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 31))
      ->option_text("N");
  command.add_option("--system", flags.system, "system message for the conversation")->option_text("TEXT");
  command.add_option("--stop", flags.stop, "end the answer before this text; again for more")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", flags.ignore_end, "go on where the model would end");
  command
      .add_option("--think-budget", flags.think_budget,
                  "most tokens to think before the answer; 0: none (default: any)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 31))
      ->option_text("N");
  command
      .add_option("--draft", flags.draft,
                  "guess ahead and check several tokens at once: `lookup` (what the text had before) or a small model")
      ->option_text("lookup|MODEL");
  command
      .add_option("--when-full", flags.when_full,
                  "when the context is full: stop, or slide (forget the oldest but the beginning; an endless chat)")
      ->check(CLI::IsMember({"stop", "slide"}))
      ->option_text("stop|slide");
  add_constraint_options(command, flags.constraint);
  add_sampling_options(command, flags.sampling, settings);
}

}  // namespace nanomind
