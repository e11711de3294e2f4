// SPDX-License-Identifier: Apache-2.0
#include "cli/sampling_options.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <limits>

#include "cli/quantity.h"

namespace nanomind {
namespace {

// TOKEN=X: TOKEN is an id or a text, X a number or "ban".
Result<LogitBias> read_bias(const std::string& typed, const Tokenizer& tokenizer) {
  const size_t equals = typed.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("--logit-bias {}: write TOKEN=X, where X is a number to add, or ban.", typed));
  }
  const std::string token = typed.substr(0, equals), value = typed.substr(equals + 1);
  const double bias = value == "ban" ? -std::numeric_limits<double>::infinity() : TRY(parse_number(value));
  if (token.find_first_not_of("0123456789") != std::string::npos) return bias_text(tokenizer, token, bias);
  const auto id = static_cast<TokenId>(TRY(parse_integer(token, 0, tokenizer.vocabulary_size() - 1)));
  return LogitBias{.token = id, .bias = bias};
}

void add_penalties(CLI::App& command, SamplerOptions& sampler, const std::string& group) {
  const auto add = [&](const char* name, auto& value, const char* help, const char* text) {
    command.add_option(name, value, help)->option_text(text)->group(group);
  };
  add("--repeat-penalty", sampler.repetition_penalty, "make recent tokens less likely; 1: off (default: 1)", "X");
  add("--presence-penalty", sampler.presence_penalty, "lower the logits of recent tokens by X (default: 0)", "X");
  add("--frequency-penalty", sampler.frequency_penalty, "and by X each time they came (default: 0)", "X");
  add("--repeat-last", sampler.repetition_window, "tokens that are recent for these; -1: all (default: 64)", "N");
  add("--dry", sampler.dry.multiplier, "lower what repeats a passage by X, more for longer ones; 0: off (default: 0)",
      "X");
  add("--dry-base", sampler.dry.base, "how much more per token (default: 1.75)", "X");
  add("--dry-length", sampler.dry.allowed_length, "tokens that may repeat freely (default: 2)", "N");
  add("--dry-window", sampler.dry.window, "tokens looked back at (default: 1024)", "N");
  add("--dry-breaker", sampler.dry.breakers, R"(texts that end a passage (default: new line, : " and *))", "TEXT");
}

}  // namespace

void add_sampling_options(CLI::App& command, SamplingFlags& flags, const Settings& settings) {
  flags.sampler = settings.sampler;
  SamplerOptions& sampler = flags.sampler;
  const std::string group = "Sampling";
  const auto add = [&](const char* name, auto& value, const char* help, const char* text) {
    command.add_option(name, value, help)->option_text(text)->group(group);
  };
  add("--temp", sampler.temperature, "temperature; 0: always the likeliest token (default: 0.7)", "X");
  add("--top-k", sampler.top_k, "choose among the K likeliest tokens; 0: all (default: 40)", "K");
  add("--top-p", sampler.top_p, "choose among the likeliest that add up to P (default: 0.95)", "P");
  add("--min-p", sampler.min_p, "drop tokens below P of the likeliest (default: 0.05)", "P");
  add("--typical-p", sampler.typical_p, "choose among the least surprising that add up to P; 1: off (default: 1)", "P");
  add("--seed", sampler.seed, "the same seed draws the same answer (default: random)", "N");
  add_penalties(command, sampler, group);
  add("--xtc", sampler.xtc.probability, "with probability P drop the likeliest tokens; 0: off (default: 0)", "P");
  add("--xtc-threshold", sampler.xtc.threshold, "those of at least P, the least of them stays (default: 0.1)", "P");
  command
      .add_option_function<double>(
          "--mirostat",
          [&sampler](double tau) {
            sampler.mirostat.version = tau > 0 ? MirostatOptions::Version::v2 : MirostatOptions::Version::off;
            sampler.mirostat.tau = tau;
          },
          "aim at BITS of surprise per token, in place of the filters; 0: off (default: 0)")
      ->option_text("BITS")
      ->group(group);
  add("--mirostat-rate", sampler.mirostat.eta, "how quickly to correct the aim (default: 0.1)", "X");
  add("--logit-bias", flags.logit_bias, "add X to the logit of a token (id or text), or ban it; again for more",
      "TOKEN=X|TOKEN=ban");
  for (const char* name : {"--logit-bias", "--dry-breaker"}) command.get_option(name)->allow_extra_args(false);
}

Result<SamplerOptions> sampler_options(const SamplingFlags& flags, const Tokenizer& tokenizer) {
  SamplerOptions options = flags.sampler;
  for (const std::string& typed : flags.logit_bias) {
    options.logit_bias.push_back(TRY(read_bias(typed, tokenizer)));
  }
  TRY(check(options));
  return options;
}

}  // namespace nanomind
