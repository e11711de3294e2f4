// SPDX-License-Identifier: Apache-2.0
// Searches for a super-block: sub-blocks whose scales are small integers times one half. Codes and small scales are
// chosen for the half, the half is fitted to them, and so on by turns.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "convert/scale_search.h"
#include "tensor/block.h"

namespace nanomind {

inline constexpr int kSuperRounds = 2;  // in which small scales, then halves are improved

// The share of the largest small scale that the halves are tried for: to clip the largest a little may serve the
// others.
inline constexpr float kSuperShares[] = {1.0F, 0.97F, 1.04F};

// Chooses small scales and codes and fits the halves in turn, from `tried` on; keeps the best in `best`.
template <typename Quantizer, typename Super>
void improve(Quantizer& quantizer, Super& tried, Super& best) {
  for (int round = 0; round < kSuperRounds; ++round) {
    quantizer.choose_small(tried);
    if (tried.error < best.error) best = tried;
    if (!quantizer.refit(tried)) break;
  }
  quantizer.choose_small(tried);
  if (tried.error < best.error) best = tried;
}

// x = d * sc[s] * code, in sub-blocks s.
template <typename Codes>
struct SymmetricSuper {
  float d = 0;
  std::array<int, Codes::kSubs> sc{};
  std::array<int8_t, kSuperBlock> codes{};
  double error = std::numeric_limits<double>::infinity();
};

// Codes says how many sub-blocks of what width there are and has, for numbers x of one,
//   float scale(x, codes)         the scale that fits best
//   double nearest(x, d, codes)   the codes for a scale, and their sum of weighted squared errors
template <typename Codes>
class SymmetricQuantizer {
 public:
  static constexpr int kSubs = Codes::kSubs, kWidth = Codes::kWidth;
  static_assert(kSubs * kWidth == kSuperBlock);
  using Super = SymmetricSuper<Codes>;

  // `scales`: what small scales can be. x has kSuperBlock numbers and outlives this.
  SymmetricQuantizer(const float* x, const Codes& codes, CodeRange scales)
      : x_(x), importance_(importance_by_size({x, kSuperBlock})), codes_(codes), range_(scales) {
    for (int s = 0; s < kSubs; ++s) scales_[s] = codes_.scale(sub(s), part(scratch_, s));
  }

  Super run() {
    float extreme = 0;
    for (const float scale : scales_) extreme = std::abs(scale) > std::abs(extreme) ? scale : extreme;
    Super best;
    for (const float share : kSuperShares) {
      Super tried{.d = as_half(share * extreme / static_cast<float>(range_.low))};
      for (int s = 0; s < kSubs; ++s) {
        const long sc = tried.d == 0 ? 0 : std::lround(scales_[s] / tried.d);
        tried.sc[s] = static_cast<int>(std::clamp<long>(sc, range_.low, range_.high));
      }
      improve(*this, tried, best);
    }
    return best;
  }

  // The best small scale of every sub-block near the one that it has.
  void choose_small(Super& t) {
    t.error = 0;
    for (int s = 0; s < kSubs; ++s) {
      double least = std::numeric_limits<double>::infinity();
      const int sc = t.sc[s];
      for (int a = std::max(range_.low, sc - 2); a <= std::min(range_.high, sc + 2); ++a) {
        const double error = codes_.nearest(sub(s), t.d * static_cast<float>(a), part(scratch_, s));
        if (error >= least) continue;
        least = error;
        t.sc[s] = a;
        std::ranges::copy(part(scratch_, s), part(t.codes, s).begin());
      }
      t.error += least;
    }
  }

  // The half that fits codes and small scales best; false where it stays.
  bool refit(Super& t) const {
    double aa = 0, ax = 0;
    for (int i = 0; i < kSuperBlock; ++i) {
      const double a = static_cast<double>(t.sc[i / kWidth]) * t.codes[i];
      const double weighted = importance_.of(x_[i]) * a;
      aa += weighted * a, ax += weighted * x_[i];
    }
    if (!(aa > 0)) return false;
    const float d = as_half(static_cast<float>(ax / aa));
    if (d == t.d) return false;
    t.d = d;
    return true;
  }

 private:
  Numbers sub(int s) const { return {{x_ + s * kWidth, kWidth}, importance_}; }
  static std::span<int8_t> part(std::array<int8_t, kSuperBlock>& all, int s) {
    return std::span(all).subspan(static_cast<size_t>(s) * kWidth, kWidth);
  }

  const float* x_;
  Importance importance_;
  Codes codes_;
  CodeRange range_;
  std::array<float, kSubs> scales_{};
  std::array<int8_t, kSuperBlock> scratch_{};
};

}  // namespace nanomind
