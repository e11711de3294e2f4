// SPDX-License-Identifier: Apache-2.0
// What lowers the logits of tokens that came lately: the repetition, presence and frequency penalties, and DRY.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/sampler_options.h"

namespace nanomind {

class Penalties {
 public:
  // Nothing is allocated after this. `tokenizer` tells the breakers of DRY apart; it may be null, which leaves DRY
  // without breakers, and else outlives the penalties.
  Penalties(const SamplerOptions& options, size_t vocabulary, const Tokenizer* tokenizer);

  // True when `apply` would change anything.
  bool active() const { return repeats_ || dry_; }
  // `recent` are the tokens so far, oldest first.
  void apply(std::span<float> logits, std::span<const TokenId> recent);

 private:
  void apply_repeats(std::span<float> logits, std::span<const TokenId> recent);
  void apply_dry(std::span<float> logits, std::span<const TokenId> recent);
  // How many of the last tokens stand after the last breaker.
  size_t tokens_after_breaker(std::span<const TokenId> recent) const;
  // Index of the token in which `breaker` ends when it begins within `recent[first]`; none: SIZE_MAX.
  size_t end_of_breaker(std::span<const TokenId> recent, size_t first, std::string_view breaker) const;
  bool known(TokenId token) const { return token >= 0 && static_cast<size_t>(token) < counts_.size(); }

  SamplerOptions options_;
  const Tokenizer* tokenizer_;
  bool repeats_;
  bool dry_;
  std::vector<int32_t> counts_;    // [V], zero between calls; of DRY the longest match
  std::vector<uint8_t> breaks_;    // [V], for DRY: the token contains a breaker
  std::vector<uint32_t> matches_;  // per place of DRY's window
};

}  // namespace nanomind
