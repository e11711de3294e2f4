// SPDX-License-Identifier: Apache-2.0
// The tokens that may come next, with the filters that drop some of them. Filters work on the probabilities of what is
// left, that is on the softmax of the logits that are still here.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/sampler_options.h"

namespace nanomind {

class Candidates {
 public:
  // Room for `vocabulary` tokens; nothing is allocated after that.
  explicit Candidates(size_t vocabulary);

  // All tokens whose logit is not minus infinity. At least one is, and none is NaN or plus infinity.
  void assign(std::span<const float> logits);

  // Keeps the k best. Here and below equal logits stand in the order of their ids, so that a seed gives the same text
  // everywhere.
  void top_k(size_t k);
  // Keeps those whose surprise is closest to the expected one, as few as reach probability p together.
  void typical(double p);
  // Keeps the best, as few as reach probability p together.
  void top_p(double p);
  // Drops those below p times the best one's probability.
  void min_p(double p);
  // Of those with at least `threshold`, keeps only the least likely.
  void exclude_top(double threshold);
  // Drops those whose surprise is above `bits`, never the best.
  void drop_surprising(double bits);
  void temper(double temperature);

  struct Choice {
    TokenId token;
    double probability;
  };
  // The token at `point`, 0 <= point < 1, of the probabilities laid end to end, best first where they are in order.
  Choice draw(double point);

  size_t size() const { return size_; }

 private:
  struct Candidate {
    TokenId id;
    float logit;
  };
  // Puts the best n in order.
  void sort(size_t n);
  // Puts some more in order than i + 1; those before are already.
  void sort_beyond(size_t i);
  // Keeps the best, and the others in order as long as they are wanted; `wanted` is given weights.
  template <typename F>
  void keep_while(const F& wanted);
  double weight(size_t i) const;  // probability up to a factor that all share; 1 for the best
  double total() const;

  std::vector<Candidate> all_;  // the first size_ are left
  std::vector<Candidate> other_;
  size_t size_ = 0;
  size_t sorted_ = 0;  // so many are in order, and better than the rest
  double best_ = 0;    // the highest logit
};

}  // namespace nanomind
