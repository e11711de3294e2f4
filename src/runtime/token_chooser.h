// SPDX-License-Identifier: Apache-2.0
// Which tokens come next in an answer: sampled ones, within what a constraint allows, or those that it forces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/generation.h"
#include "runtime/sampler.h"
#include "text/grammar.h"

namespace nanomind {

class TokenChooser {
 public:
  // Options must have passed check. `tokenizer` and `vocabulary` (which may be null without a constraint) outlive the
  // result. A constraint that cannot be understood or met is an error. `logits` is V.
  static Result<TokenChooser> create(const GenerateOptions& options, int64_t logits, const Tokenizer& tokenizer,
                                     const GrammarVocabulary* vocabulary);

  struct Next {
    std::span<const TokenId> tokens;  // valid until the next call; not empty
    bool forced = false;
  };
  enum class Phase { reasoning, answer };
  // Logits [V] are those after `recent`, the tokens so far. In reasoning the constraint waits, and its budget is
  // counted.
  Result<Next> next(std::span<const float> logits, std::span<const TokenId> recent, Phase phase);

  // True when the constraint is met and nothing can follow.
  bool finished() const { return finished_; }

 private:
  TokenChooser(const GenerateOptions& options, int64_t logits, const Tokenizer& tokenizer);
  // Tokens for the text that must come next; empty when several may.
  Result<void> force();
  Result<void> sample_allowed(std::span<const float> logits, std::span<const TokenId> recent);

  // Tokens that close the reasoning, once its budget is spent.
  bool close_reasoning();

  const Tokenizer* tokenizer_;
  Sampler sampler_;
  bool may_force_;               // several tokens at once: not where each needs its own log-probabilities
  std::vector<TokenId> tokens_;  // the next ones
  std::optional<Grammar> grammar_;
  std::vector<uint32_t> mask_;
  std::vector<TokenId> ends_;  // all tokens that end an answer
  bool finished_ = false;
  std::string close_;    // marker of reasoning
  int64_t budget_ = -1;  // tokens of reasoning that are left; -1: no bound
};

}  // namespace nanomind
