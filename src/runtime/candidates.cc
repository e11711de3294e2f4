// SPDX-License-Identifier: Apache-2.0
#include "runtime/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nanomind {
namespace {

constexpr size_t kFirstSorted = 128;
constexpr auto kBetter = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

std::ptrdiff_t offset(size_t n) { return static_cast<std::ptrdiff_t>(n); }

}  // namespace

Candidates::Candidates(size_t vocabulary) : all_(vocabulary), other_(vocabulary) {}

void Candidates::assign(std::span<const float> logits) {
  size_ = sorted_ = 0;
  float best = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    all_[size_] = {static_cast<TokenId>(i), logits[i]};
    size_ += logits[i] != -std::numeric_limits<float>::infinity() ? 1 : 0;
    best = std::max(best, logits[i]);
  }
  best_ = best;
}

double Candidates::weight(size_t i) const { return std::exp(static_cast<double>(all_[i].logit) - best_); }

double Candidates::total() const {
  double sum = 0;
  for (size_t i = 0; i < size_; ++i) sum += weight(i);
  return sum;
}

void Candidates::sort(size_t n) {
  n = std::min(n, size_);
  if (n <= sorted_) return;
  const auto begin = all_.begin();
  if (n < size_) std::nth_element(begin + offset(sorted_), begin + offset(n), begin + offset(size_), kBetter);
  std::sort(begin + offset(sorted_), begin + offset(n), kBetter);
  sorted_ = n;
}

void Candidates::sort_beyond(size_t i) {
  if (i >= sorted_) sort(std::max(kFirstSorted, 4 * (i + 1)));
}

void Candidates::top_k(size_t k) {
  if (k == 0 || k >= size_) return;
  if (k <= sorted_) {
    size_ = sorted_ = k;
    return;
  }
  // A heap of the k best, its worst on top: nearly every token is refused by one comparison.
  const auto heap = all_.begin(), end = all_.begin() + offset(k);
  std::make_heap(heap, end, kBetter);
  for (size_t i = k; i < size_; ++i) {
    if (!kBetter(all_[i], *heap)) continue;
    std::pop_heap(heap, end, kBetter);
    all_[k - 1] = all_[i];
    std::push_heap(heap, end, kBetter);
  }
  std::sort_heap(heap, end, kBetter);
  size_ = sorted_ = k;
}

void Candidates::typical(double p) {
  if (p >= 1 || size_ == 0) return;
  const double sum = total(), log_sum = std::log(sum);
  double entropy = 0;  // nats
  for (size_t i = 0; i < size_; ++i) {
    entropy -= weight(i) / sum * (static_cast<double>(all_[i].logit) - best_ - log_sum);
  }
  // In `other_` the logit is the distance from the entropy, negated: the closest is best.
  for (size_t i = 0; i < size_; ++i) {
    const double surprise = log_sum - (static_cast<double>(all_[i].logit) - best_);
    other_[i] = {static_cast<TokenId>(i), static_cast<float>(-std::abs(surprise - entropy))};
  }
  std::sort(other_.begin(), other_.begin() + offset(size_), kBetter);
  double mass = 0;
  size_t n = 0;
  while (n < size_ && (n == 0 || mass < p * sum)) mass += weight(static_cast<size_t>(other_[n++].id));
  for (size_t i = 0; i < n; ++i) other_[i] = all_[static_cast<size_t>(other_[i].id)];
  std::swap(all_, other_);
  size_ = n;
  sorted_ = 0;
  sort(n);
  best_ = all_[0].logit;
}

template <typename F>
void Candidates::keep_while(const F& wanted) {
  size_t n = 0;
  while (n < size_ && (sort_beyond(n), n == 0 || wanted(weight(n)))) ++n;
  size_ = n;
  sorted_ = std::min(sorted_, n);
}

void Candidates::top_p(double p) {
  if (p >= 1 || size_ == 0) return;
  const double enough = p * total();
  double mass = 1;  // of the best
  keep_while([&](double w) { return mass < enough && (mass += w, true); });
}

void Candidates::min_p(double p) {
  if (p > 0) keep_while([&](double w) { return w >= p; });
}

void Candidates::exclude_top(double threshold) {
  const double limit = threshold * total();
  size_t likely = 0;
  while (likely < size_ && (sort_beyond(likely), weight(likely) >= limit)) ++likely;
  if (likely < 2) return;
  const size_t dropped = likely - 1;
  std::copy(all_.begin() + offset(dropped), all_.begin() + offset(size_), all_.begin());
  size_ -= dropped;
  sorted_ -= dropped;
  best_ = all_[0].logit;
}

void Candidates::drop_surprising(double bits) {
  const double limit = std::exp2(-bits) * total();
  keep_while([&](double w) { return w >= limit; });
}

void Candidates::temper(double temperature) {
  for (size_t i = 0; i < size_; ++i) all_[i].logit = static_cast<float>(all_[i].logit / temperature);
  best_ = static_cast<float>(best_ / temperature);
}

Candidates::Choice Candidates::draw(double point) {
  const double sum = total();
  double left = point * sum;
  size_t chosen = 0;
  for (size_t i = 0; i < size_; ++i) {
    const double w = weight(i);
    if (w > 0) chosen = i;  // rounding may leave a little at the end; it goes to the last that can be
    left -= w;
    if (left < 0) break;
  }
  return {all_[chosen].id, weight(chosen) / sum};
}

}  // namespace nanomind
