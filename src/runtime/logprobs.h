// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens as a caller may ask for them: natural logarithms of the model's own distribution, before
// anything that sampling changes.
#pragma once

#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace nanomind {

struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;
};

// What was likely at one place of an answer.
struct LogprobRow {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the likeliest, best first; equal ones by id
};
inline constexpr int kMostLogprobs = 100;

// log(sum of exp(logits)), in double: what a logit lacks to be a log-probability.
double log_sum_exp(std::span<const float> logits);

// logits [V]; `token` < V. Gives min(top, V) of the likeliest.
LogprobRow logprobs_of(std::span<const float> logits, TokenId token, int top);

}  // namespace nanomind
