// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from logits. What the options say is done in this order:
//   1. logit bias, then the mask of a grammar;                       temperature 0 takes the best of this
//   2. repetition, presence and frequency penalties, then DRY;
//   3. top-k, typical, top-p, min-p, XTC, each on the probabilities of what the one before left, untempered;
//   4. temperature, and a draw.
// With mirostat the steps from 3 on are: temperature, drop what is too surprising, a draw.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/candidates.h"
#include "runtime/penalties.h"
#include "runtime/sampler_options.h"

namespace nanomind {

class Sampler {
 public:
  // Options must have passed check. Sized for `vocabulary`, so sampling allocates nothing. The tokenizer is for the
  // breakers of DRY; it may be null, and outlives the sampler.
  Sampler(const SamplerOptions& options, int64_t vocabulary, const Tokenizer* tokenizer = nullptr);

  // `recent` are the tokens so far, oldest first. Logits [V] are not changed. `allowed` is a mask as Grammar makes it,
  // whose missing bits are 0; empty: all are allowed. Fails when a logit is NaN or infinite (a damaged model), or when
  // bias and mask leave no token.
  Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> recent,
                         std::span<const uint32_t> allowed = {});

 private:
  Result<TokenId> greedy(std::span<const float> logits) const;
  Result<std::span<const float>> adjust(std::span<const float> logits, std::span<const uint32_t> allowed);
  void filter();
  TokenId draw();
  double random();  // in [0, 1)

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<float> logits_;  // [V], changed ones
  Penalties penalties_;
  Candidates candidates_;
  double mirostat_limit_;  // bits
};

}  // namespace nanomind
