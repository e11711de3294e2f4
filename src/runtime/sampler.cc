// SPDX-License-Identifier: Apache-2.0
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nanomind {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Whether every logit is a number or minus infinity.
bool usable(std::span<const float> logits) {
  bool all = true;
  for (const float logit : logits) all &= logit <= std::numeric_limits<float>::max();
  return all;
}

std::unexpected<Error> no_numbers() {
  return fail(
      ErrorCode::corrupt,
      "The model computed values that are no numbers (NaN or infinite), so no token can be chosen. Its file may "
      "be damaged: fetch it again, or try --isa scalar.");
}

std::unexpected<Error> nothing_left() {
  return fail(ErrorCode::invalid_argument,
              "No token may come next: logit bias and grammar together forbid them all. Ban fewer tokens.");
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options, int64_t vocabulary, const Tokenizer* tokenizer)
    : options_(options),
      random_(options.seed ? *options.seed : std::random_device{}()),
      logits_(static_cast<size_t>(vocabulary)),
      penalties_(options, static_cast<size_t>(vocabulary), tokenizer),
      candidates_(static_cast<size_t>(vocabulary)),
      mirostat_limit_(2 * options.mirostat.tau) {}

// 53 random bits as a number in [0, 1): the same on every machine, unlike the standard distributions.
double Sampler::random() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

Result<TokenId> Sampler::greedy(std::span<const float> logits) const {
  TokenId best = -1;
  float highest = kNever;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > highest) {
      highest = logits[i];
      best = static_cast<TokenId>(i);
    }
  }
  if (best < 0) return nothing_left();
  return best;
}

// Bias and mask; what came in where neither is set.
Result<std::span<const float>> Sampler::adjust(std::span<const float> logits, std::span<const uint32_t> allowed) {
  if (options_.logit_bias.empty() && allowed.empty()) return logits;
  std::ranges::copy(logits, logits_.begin());
  for (const LogitBias& bias : options_.logit_bias) {
    if (static_cast<size_t>(bias.token) < logits_.size()) {
      logits_[static_cast<size_t>(bias.token)] += static_cast<float>(bias.bias);
    }
  }
  if (!allowed.empty()) {
    for (size_t word = 0; word * 32 < logits_.size(); ++word) {
      const uint32_t bits = word < allowed.size() ? allowed[word] : 0;
      if (bits == ~uint32_t{0}) continue;
      const size_t end = std::min(logits_.size(), word * 32 + 32);
      for (size_t i = word * 32; i < end; ++i) logits_[i] = bits >> (i % 32) & 1 ? logits_[i] : kNever;
    }
  }
  return logits_;
}

void Sampler::filter() {
  candidates_.top_k(static_cast<size_t>(options_.top_k));
  candidates_.typical(options_.typical_p);
  candidates_.top_p(options_.top_p);
  candidates_.min_p(options_.min_p);
  if (options_.xtc.probability > 0 && random() < options_.xtc.probability) {
    candidates_.exclude_top(options_.xtc.threshold);
  }
}

TokenId Sampler::draw() {
  if (options_.mirostat.version == MirostatOptions::Version::off) {
    filter();
    candidates_.temper(options_.temperature);
    return candidates_.draw(random()).token;
  }
  candidates_.temper(options_.temperature);
  candidates_.drop_surprising(mirostat_limit_);
  const auto choice = candidates_.draw(random());
  mirostat_limit_ -= options_.mirostat.eta * (-std::log2(choice.probability) - options_.mirostat.tau);
  return choice.token;
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> recent,
                                std::span<const uint32_t> allowed) {
  CHECK(logits.size() == logits_.size());
  if (!usable(logits)) return no_numbers();
  std::span<const float> adjusted = TRY(adjust(logits, allowed));
  if (options_.temperature == 0) return greedy(adjusted);
  if (penalties_.active()) {
    if (adjusted.data() != logits_.data()) std::ranges::copy(adjusted, logits_.begin());
    penalties_.apply(logits_, recent);
    adjusted = logits_;
  }
  candidates_.assign(adjusted);
  if (candidates_.size() == 0) return nothing_left();
  return draw();
}

}  // namespace nanomind
