// SPDX-License-Identifier: Apache-2.0
#include "convert/scale_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/result.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

constexpr size_t kLanes = 8;  // sums are kept in lanes, so that they can be vectors and still have one order
constexpr size_t kMost = 256;
constexpr float kLargestHalf = 65504.0F;
constexpr int kTurns = 3;

using Buffer = std::array<float, kMost>;
using Lanes = std::array<float, kLanes>;

float sum(const Lanes& lanes) {
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

// The nearest whole number, of |x| < 2^22; ties to even.
float nearest(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

// Codes of x for d * q + m, as floats.
void round_codes(std::span<const float> x, float inverse, float m, float low, float high, float* q) {
  for (size_t i = 0; i < x.size(); ++i) q[i] = nearest(std::min(high, std::max(low, (x[i] - m) * inverse)));
}

float error_of(std::span<const float> x, float d, float m, const float* q) {
  Lanes lanes{};
  for (size_t i = 0; i < x.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float off = x[i + l] - (d * q[i + l] + m);
      lanes[l] += off * off;
    }
  }
  return sum(lanes);
}

float inverse_of(float d) { return d == 0 ? 0.0F : 1.0F / d; }

struct Sums {
  float q = 0, qq = 0, x = 0, xq = 0;
};
Sums sums_of(std::span<const float> x, const float* q) {
  Lanes sq{}, sqq{}, sx{}, sxq{};
  for (size_t i = 0; i < x.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      sq[l] += q[i + l];
      sqq[l] += q[i + l] * q[i + l];
      sx[l] += x[i + l];
      sxq[l] += x[i + l] * q[i + l];
    }
  }
  return {sum(sq), sum(sqq), sum(sx), sum(sxq)};
}

// Keeps the scale with the least error.
class SymmetricSearch {
 public:
  SymmetricSearch(std::span<const float> x, CodeRange range)
      : x_(x), low_(static_cast<float>(range.low)), high_(static_cast<float>(range.high)) {}

  // Whether d became the best one.
  bool offer(float d) {
    d = as_half(d);
    round_codes(x_, inverse_of(d), 0, low_, high_, q_.data());
    const float error = error_of(x_, d, 0, q_.data());
    if (!(error < best_.error)) return false;
    best_ = {d, error};
    return true;
  }
  // The best scale for the codes that another one gives.
  float refit(float inverse) {
    round_codes(x_, inverse, 0, low_, high_, q_.data());
    const Sums s = sums_of(x_, q_.data());
    return s.qq > 0 ? s.xq / s.qq : 0.0F;
  }
  const SymmetricFit& best() const { return best_; }

 private:
  std::span<const float> x_;
  float low_, high_;
  Buffer q_;
  SymmetricFit best_{0, std::numeric_limits<double>::infinity()};
};

// Scale and offset that fit x to codes best; nothing where all codes are alike.
bool fit_line(std::span<const float> x, const float* q, Offset offset, float& d, float& m) {
  const Sums s = sums_of(x, q);
  const auto n = static_cast<float>(x.size());
  const float determinant = n * s.qq - s.q * s.q;
  if (!(determinant > 0)) return false;
  d = (n * s.xq - s.x * s.q) / determinant;
  m = (s.qq * s.x - s.q * s.xq) / determinant;
  if (offset == Offset::not_positive && m > 0) {
    m = 0;
    d = s.qq > 0 ? s.xq / s.qq : 0.0F;
  }
  return true;
}

}  // namespace

float as_half(float value) {
  return float_from_half(half_from_float(std::min(kLargestHalf, std::max(-kLargestHalf, value))));
}

SymmetricFit fit_symmetric(std::span<const float> x, CodeRange range, int tries, std::span<int8_t> codes) {
  CHECK(x.size() <= kMost && x.size() % kLanes == 0);
  float extreme = 0;
  for (const float value : x) extreme = std::abs(value) > std::abs(extreme) ? value : extreme;
  SymmetricSearch search(x, range);
  search.offer(0);
  if (extreme != 0) {
    // The extreme becomes the lowest code, of which there is one more, or the highest.
    for (const int end : {range.low, range.high}) {
      search.offer(extreme / static_cast<float>(end));
      for (int i = -tries; i <= tries; ++i) {
        const float inverse = (static_cast<float>(end) + 0.1F * static_cast<float>(i)) / extreme;
        search.offer(search.refit(inverse));
      }
    }
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!search.offer(search.refit(inverse_of(search.best().d)))) break;
    }
  }
  SymmetricFit fit = search.best();
  fit.error = nearest_symmetric(x, fit.d, range, codes);
  return fit;
}

OffsetFit fit_offset(std::span<const float> x, int high, Offset offset, bool is_stored, std::span<uint8_t> codes) {
  CHECK(x.size() <= kMost && x.size() % kLanes == 0);
  const auto [low_at, high_at] = std::ranges::minmax_element(x);
  const float least = offset == Offset::not_positive ? std::min(*low_at, 0.0F) : *low_at, most = *high_at;
  const auto top = static_cast<float>(high);
  Buffer q;
  OffsetFit best{0, 0, std::numeric_limits<double>::infinity()};
  const auto offer = [&](float d, float m) {
    if (is_stored) d = as_half(d), m = as_half(m);
    round_codes(x, inverse_of(d), m, 0, top, q.data());
    const float error = error_of(x, d, m, q.data());
    if (!(error < best.error)) return false;
    best = {d, m, error};
    return true;
  };
  const auto refit = [&](float inverse, float m) {
    round_codes(x, inverse, m, 0, top, q.data());
    float d = 0, new_m = 0;
    return fit_line(x, q.data(), offset, d, new_m) && offer(d, new_m);
  };
  offer(0, std::min(least, most));
  const float range = most - least;
  if (range > 0) {
    offer(range / top, least);
    for (int i = -10; i <= 10; ++i) refit((top + 0.1F * static_cast<float>(i)) / range, least);
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!refit(inverse_of(best.d), best.m)) break;
    }
  }
  best.error = nearest_offset(x, best.d, best.m, high, codes);
  return best;
}

double nearest_symmetric(std::span<const float> x, float d, CodeRange range, std::span<int8_t> codes) {
  Buffer q;
  round_codes(x, inverse_of(d), 0, static_cast<float>(range.low), static_cast<float>(range.high), q.data());
  for (size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<int8_t>(q[i]);
  return error_of(x, d, 0, q.data());
}

double nearest_offset(std::span<const float> x, float d, float m, int high, std::span<uint8_t> codes) {
  Buffer q;
  round_codes(x, inverse_of(d), m, 0, static_cast<float>(high), q.data());
  for (size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<uint8_t>(q[i]);
  return error_of(x, d, m, q.data());
}

}  // namespace nanomind
