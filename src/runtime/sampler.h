// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from logits: repetition penalty, then top-k, top-p, min-p, temperature and a seeded draw.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace nanomind {

struct SamplerOptions {
  double temperature = 0.7;  // 0: greedy, exactly the largest logit, whatever else is set
  int top_k = 40;            // 0: all
  double top_p = 0.95;       // 1: all
  double min_p = 0.05;       // of the best token's probability; 0: off
  double repetition_penalty =
      1.0;  // 1: off; divides positive and multiplies negative logits of recent tokens (arXiv 1909.05858)
  int repetition_window = 64;    // tokens looked back at
  std::optional<uint64_t> seed;  // absent: from the system
};

// Says which field is out of range and what the range is.
Result<void> check(const SamplerOptions& options);

class Sampler {
 public:
  // Options must have passed check. Sized for `vocabulary`, so sampling allocates nothing.
  Sampler(const SamplerOptions& options, int64_t vocabulary);

  // `recent` are the tokens so far, oldest first. Logits [V] are not changed. NaNs are never chosen.
  TokenId sample(std::span<const float> logits, std::span<const TokenId> recent);

 private:
  struct Candidate {
    TokenId id;
    float logit;
  };
  TokenId greedy(std::span<const float> logits) const;
  void penalise(std::span<const TokenId> recent);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;  // [V]
  std::vector<uint8_t> seen_;          // [V], scratch of penalise
};

}  // namespace nanomind
