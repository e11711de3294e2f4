// SPDX-License-Identifier: Apache-2.0
#include "runtime/draft.h"

#include <algorithm>
#include <cmath>

#include "runtime/engine.h"
#include "runtime/logprobs.h"

namespace nanomind {
namespace {

constexpr int64_t kLongestRun = 4, kShortestRun = 2;  // tokens that must stand in both places
constexpr double kSureEnough = 0.5;                   // probability of a small model's guess
constexpr int64_t kTries = 6;                         // before drafts are judged
constexpr int64_t kLongestPause = 512;

// What stood after the latest earlier place of the last tokens; the more of them are equal, the better.
class LookupDrafter final : public Drafter {
 public:
  void draft(std::span<const TokenId> tokens, int64_t most, std::vector<TokenId>& out) override {
    const auto count = static_cast<int64_t>(tokens.size());
    int64_t best = kShortestRun - 1, place = -1;
    for (int64_t end = count - 1; end >= kShortestRun; --end) {
      int64_t run = 0;
      while (run < kLongestRun && run < end && at(tokens, end - 1 - run) == at(tokens, count - 1 - run)) ++run;
      if (run <= best) continue;
      best = run;
      place = end;
      if (run == kLongestRun) break;
    }
    if (place < 0) return;
    const auto found = tokens.subspan(static_cast<size_t>(place), static_cast<size_t>(std::min(most, count - place)));
    out.insert(out.end(), found.begin(), found.end());
  }

 private:
  static TokenId at(std::span<const TokenId> tokens, int64_t i) { return tokens[static_cast<size_t>(i)]; }
};

// The best token of a small model, as long as it is sure.
class ModelDrafter final : public Drafter {
 public:
  explicit ModelDrafter(Session& session) : session_(session) {}

  void draft(std::span<const TokenId> tokens, int64_t most, std::vector<TokenId>& out) override {
    if (static_cast<int64_t>(tokens.size()) + most > session_.capacity()) return;
    text_.assign(tokens.begin(), tokens.end());
    for (int64_t i = 0; i < most; ++i) {
      // Without its help the answer goes on as well.
      if (!session_.feed(text_, nullptr)) return;
      const std::span<const float> logits = session_.logits();
      const auto best = std::ranges::max_element(logits);
      if (std::exp(*best - log_sum_exp(logits)) < kSureEnough) return;
      text_.push_back(static_cast<TokenId>(best - logits.begin()));
      out.push_back(text_.back());
    }
  }

 private:
  Session& session_;
  std::vector<TokenId> text_;
};

}  // namespace

std::unique_ptr<Drafter> make_drafter(const SpeculationOptions& options) {
  switch (options.kind) {
    case SpeculationOptions::Kind::none: return nullptr;
    case SpeculationOptions::Kind::lookup: return std::make_unique<LookupDrafter>();
    case SpeculationOptions::Kind::model: return std::make_unique<ModelDrafter>(*options.draft);
  }
  return nullptr;
}

void DraftGauge::record(int64_t drafted, int64_t accepted, double ms) {
  if (drafted == 0) {
    plain_ms_.add(ms);
    if (waiting_ > 0) --waiting_;
    return;
  }
  draft_ms_.add(ms);
  gained_.add(1 + static_cast<double>(accepted));
  // All right: guess more the next time; else about as many as were right lately.
  length_ = accepted == drafted ? std::min(most_, 2 * length_)
                                : std::clamp(static_cast<int64_t>(std::lround(*gained_.value)), int64_t{1}, most_);
  if (++tried_ < kTries || !plain_ms_.value) return;
  if (*gained_.value / *draft_ms_.value < 1 / *plain_ms_.value) {
    give_up();
  } else {
    pause_ = 16;
  }
}

void DraftGauge::give_up() {
  waiting_ = pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  tried_ = 0;
  length_ = most_;
  draft_ms_ = {};
  gained_ = {};
}

}  // namespace nanomind
