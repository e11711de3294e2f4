// SPDX-License-Identifier: Apache-2.0
#include "runtime/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nanomind {

double log_sum_exp(std::span<const float> logits) {
  const double best = *std::ranges::max_element(logits);
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0,
                                     [&](double total, float logit) { return total + std::exp(logit - best); });
  return best + std::log(sum);
}

LogprobRow logprobs_of(std::span<const float> logits, TokenId token, int top) {
  const double log_sum = log_sum_exp(logits);
  const auto of = [&](TokenId id) { return TokenLogprob{id, logits[static_cast<size_t>(id)] - log_sum}; };
  LogprobRow row{.chosen = of(token), .top = {}};
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto n = static_cast<std::ptrdiff_t>(std::min(ids.size(), static_cast<size_t>(std::max(top, 0))));
  std::partial_sort(ids.begin(), ids.begin() + n, ids.end(), [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (auto id = ids.begin(); id != ids.begin() + n; ++id) row.top.push_back(of(*id));
  return row;
}

}  // namespace nanomind
