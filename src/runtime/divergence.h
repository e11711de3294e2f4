// SPDX-License-Identifier: Apache-2.0
// How far a model's predictions are from those of another one, of which it is a smaller form: both predict the same
// text, one after the other, and what the first said waits in a file, so that never both are in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/engine.h"
#include "runtime/perplexity.h"

namespace nanomind {

struct Divergence {
  int64_t positions = 0;
  // Kullback-Leibler divergence of the other's distributions from the reference's, in nats.
  double mean = 0, worst_percent = 0, most = 0;  // worst_percent: 99 of 100 positions have less
  double same_best = 0;                          // share of positions whose most likely token is the same
};

// Adds up position by position.
class DivergenceMeter {
 public:
  // Logits [V] of both for one position; a constant added to either changes nothing.
  void add(std::span<const float> reference, std::span<const float> other);
  Divergence result() const;

 private:
  std::vector<double> values_;
  int64_t same_ = 0;
};

struct Comparison {
  PerplexityResult reference, model;
  Divergence divergence;
};

using OpenEngine = std::function<Result<std::unique_ptr<Engine>>()>;

// Opens, measures and closes `reference`, then `model`. Errors: those of opening, of perplexity, invalid_argument when
// the two read the text as different tokens, no_space when the reference's logits do not fit into the folder for
// temporary files (4 bytes per scored position and token of the vocabulary).
Result<Comparison> compare(const OpenEngine& reference, const OpenEngine& model, std::string_view text,
                           const PerplexityOptions& options);

}  // namespace nanomind
