// SPDX-License-Identifier: Apache-2.0
// How the next token is chosen. The order in which the options work is that of sampler.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace nanomind {

// Against repeating a passage word by word ("don't repeat yourself", text-generation-webui pull request 5677): a token
// that would make the text's end match an earlier passage of n tokens, n >= allowed_length, loses
// multiplier * base^(n - allowed_length) logits. A passage ends at a breaker.
struct DryOptions {
  double multiplier = 0;  // 0: off
  double base = 1.75;
  int allowed_length = 2;
  int window = 1024;  // tokens looked back at, at most kMostWindow
  std::vector<std::string> breakers = {"\n", ":", "\"", "*"};
};

// Drops, with some probability, all likely tokens but the least likely of them ("exclude top choices",
// text-generation-webui pull request 6335).
struct XtcOptions {
  double probability = 0;  // 0: off
  double threshold = 0.1;  // a token is likely from this probability on
};

// Steers the surprise of the text, in bits per token, instead of filtering (mirostat 2, arXiv 2007.14966, algorithm 2).
struct MirostatOptions {
  enum class Version { off, v2 } version = Version::off;
  double tau = 5.0;  // surprise aimed at
  double eta = 0.1;  // learning rate
};

// Added to the logit of a token; minus infinity bans it.
struct LogitBias {
  TokenId token = 0;
  double bias = 0;
};

struct SamplerOptions {
  double temperature = 0.7;  // 0: greedy, exactly the largest logit, whatever else is set but bias and grammar
  int top_k = 40;            // 0: all
  double top_p = 0.95;       // 1: all
  double min_p = 0.05;       // of the best token's probability; 0: off
  double typical_p = 1.0;    // 1: off (locally typical sampling, arXiv 2202.00666)
  // 1: off; divides positive and multiplies negative logits of recent tokens (arXiv 1909.05858).
  double repetition_penalty = 1.0;
  double presence_penalty = 0;   // 0: off; subtracted once from the logit of a recent token,
  double frequency_penalty = 0;  // and this as often as the token came
  int repetition_window = 64;    // tokens that are recent for these three, prompt included; -1: all
  DryOptions dry;
  XtcOptions xtc;
  MirostatOptions mirostat;  // takes the place of top-k, typical, top-p, min-p and XTC
  std::vector<LogitBias> logit_bias;
  std::optional<uint64_t> seed;  // absent: from the system
};
inline constexpr int kMostWindow = 1 << 20;

// The bias for the token that `text` is. invalid_argument where it is several, which all have lives of their own.
Result<LogitBias> bias_text(const Tokenizer& tokenizer, std::string_view text, double bias);

// Says which option is out of range and what the range is.
Result<void> check(const SamplerOptions& options);

}  // namespace nanomind
