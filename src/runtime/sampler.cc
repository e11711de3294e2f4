// SPDX-License-Identifier: Apache-2.0
#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace nanomind {

Result<void> check(const SamplerOptions& o) {
  const auto outside = [](const char* what, double value, const char* range) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} is {}; it must be {}.", what, value, range));
  };
  if (!(o.temperature >= 0 && o.temperature <= 100)) return outside("The temperature", o.temperature, "0 to 100");
  if (o.top_k < 0) return outside("top-k", o.top_k, "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return outside("top-p", o.top_p, "above 0 and at most 1");
  if (!(o.min_p >= 0 && o.min_p <= 1)) return outside("min-p", o.min_p, "0 to 1");
  if (!(o.repetition_penalty > 0 && o.repetition_penalty <= 100)) {
    return outside("The repetition penalty", o.repetition_penalty, "above 0 and at most 100");
  }
  if (o.repetition_window < 0) return outside("The repetition window", o.repetition_window, "0 or more tokens");
  return {};
}

Sampler::Sampler(const SamplerOptions& options, int64_t vocabulary)
    : options_(options),
      random_(options.seed ? *options.seed : std::random_device{}()),
      candidates_(static_cast<size_t>(vocabulary)),
      seen_(static_cast<size_t>(vocabulary)) {}

TokenId Sampler::greedy(std::span<const float> logits) const {
  TokenId best = 0;
  float highest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > highest) {  // false for NaN
      highest = logits[i];
      best = static_cast<TokenId>(i);
    }
  }
  return best;
}

void Sampler::penalise(std::span<const TokenId> recent) {
  const auto window = std::min(recent.size(), static_cast<size_t>(options_.repetition_window));
  const std::span<const TokenId> tokens = recent.last(window);
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (TokenId token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= candidates_.size() || seen_[static_cast<size_t>(token)]) continue;
    seen_[static_cast<size_t>(token)] = 1;
    float& logit = candidates_[static_cast<size_t>(token)].logit;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  for (TokenId token : tokens) {
    if (token >= 0 && static_cast<size_t>(token) < seen_.size()) seen_[static_cast<size_t>(token)] = 0;
  }
}

TokenId Sampler::sample(std::span<const float> logits, std::span<const TokenId> recent) {
  CHECK(logits.size() == candidates_.size());
  if (options_.temperature == 0) return greedy(logits);

  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_[i] = {static_cast<TokenId>(i), std::isnan(logits[i]) ? kNever : logits[i]};
  }
  if (options_.repetition_penalty != 1.0) penalise(recent);

  // Best first, as many as top-k keeps; ties by id, so that a seed gives the same text everywhere.
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  size_t kept =
      options_.top_k == 0 ? candidates_.size() : std::min(candidates_.size(), static_cast<size_t>(options_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept), candidates_.end(),
                    better);

  // top-p and min-p look at the untempered probabilities of what top-k left.
  const double best = candidates_[0].logit;
  const auto weight = [&](size_t i, double temperature) {
    return std::exp((candidates_[i].logit - best) / temperature);
  };
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weight(i, 1.0);
  double mass = 0;
  size_t n = 0;
  while (n < kept && (n == 0 || (mass < options_.top_p * total && weight(n, 1.0) >= options_.min_p)))
    mass += weight(n++, 1.0);

  double tempered = 0;
  for (size_t i = 0; i < n; ++i) tempered += weight(i, options_.temperature);
  // 53 random bits as a number in [0, 1): the same on every machine, unlike the standard distributions.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * tempered;
  for (size_t i = 0; i < n; ++i) {
    left -= weight(i, options_.temperature);
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[n - 1].id;
}

}  // namespace nanomind
