// SPDX-License-Identifier: Apache-2.0
// Speculative decoding (arXiv 2211.17192): a drafter guesses what comes next, the model reads all guesses in one step,
// and those are kept that it would have chosen itself, so the text is the one without drafts. Guesses come from an
// earlier place of the text where the last tokens stood too (prompt lookup), or from a small model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/generation.h"
#include "text/tokenizer.h"

namespace nanomind {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Appends up to `most` guesses of what follows `tokens`; none where it has no idea.
  virtual void draft(std::span<const TokenId> tokens, int64_t most, std::vector<TokenId>& out) = 0;
};

// Null for Speculation::none. The draft session of the options outlives the result.
std::unique_ptr<Drafter> make_drafter(const SpeculationOptions& options);

// How many tokens are worth guessing now, by what guesses brought and cost so far. Times are those of whole steps with
// what choosing and guessing took.
class DraftGauge {
 public:
  explicit DraftGauge(int64_t most) : most_(most), length_(most) {}
  // 0: not now.
  int64_t length() const { return waiting_ > 0 ? 0 : length_; }
  // A step that read one token and `drafted` guesses, of which the first `accepted` were right.
  void record(int64_t drafted, int64_t accepted, double ms);

 private:
  void give_up();

  // Averages that forget, by 1/8 a step.
  struct Average {
    std::optional<double> value;
    void add(double x) { value = value ? *value + (x - *value) / 8 : x; }
  };
  int64_t most_;
  int64_t length_;       // of the next draft
  int64_t waiting_ = 2;  // steps without drafts, first to know what they cost
  int64_t pause_ = 16;   // the next time out, in steps
  int64_t tried_ = 0;    // steps with drafts since the last time out
  Average plain_ms_, draft_ms_, gained_;
};

}  // namespace nanomind
