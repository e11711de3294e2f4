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

using Lanes = std::array<float, kLanes>;

float sum(const Lanes& lanes) {
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

// The nearest whole number, of |x| < 2^22; ties to even.
float nearest_integer(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

float inverse_of(float d) { return d == 0 ? 0.0F : 1.0F / d; }

// --- what codes can be: grids round kLanes numbers at once ---

// Whole numbers of a range.
class RangeGrid {
 public:
  explicit RangeGrid(CodeRange range) : low_(static_cast<float>(range.low)), high_(static_cast<float>(range.high)) {}

  float low() const { return low_; }
  float high() const { return high_; }
  float step() const { return 0.1F; }  // between scales that are tried, in codes
  // Codes of (x - m) * inverse.
  Lanes round(const float* x, float inverse, float m) const {
    Lanes q;
    for (size_t l = 0; l < kLanes; ++l) q[l] = nearest_integer(std::min(high_, std::max(low_, (x[l] - m) * inverse)));
    return q;
  }

 private:
  float low_, high_;
};

class TableGrid {
 public:
  explicit TableGrid(const ValueTable& table) : table_(table) {}

  float low() const { return table_.low(); }
  float high() const { return table_.high(); }
  float step() const { return -0.0125F * table_.low(); }
  Lanes round(const float* x, float inverse, float m) const {
    std::array<int, kLanes> places;
    for (size_t l = 0; l < kLanes; ++l) places[l] = ValueTable::place((x[l] - m) * inverse);
    Lanes q;
    for (size_t l = 0; l < kLanes; ++l) q[l] = table_.at(places[l]);
    return q;
  }

 private:
  const ValueTable& table_;
};

// Sum of weighted squared errors of d * q + m with the nearest codes.
template <typename Grid>
float error_of(const Numbers& numbers, float d, float m, const Grid& grid) {
  const auto [x, importance] = numbers;
  const float inverse = inverse_of(d);
  Lanes lanes{};
  for (size_t i = 0; i < x.size(); i += kLanes) {
    const Lanes q = grid.round(&x[i], inverse, m);
    for (size_t l = 0; l < kLanes; ++l) {
      const float off = x[i + l] - (d * q[l] + m);
      lanes[l] += importance.of(x[i + l]) * off * off;
    }
  }
  return sum(lanes);
}

template <typename Code, typename Grid>
float nearest(const Numbers& numbers, float d, float m, const Grid& grid, std::span<Code> codes) {
  const auto x = numbers.x;
  const float inverse = inverse_of(d);
  for (size_t i = 0; i < x.size(); i += kLanes) {
    const Lanes q = grid.round(&x[i], inverse, m);
    for (size_t l = 0; l < kLanes; ++l) codes[i + l] = static_cast<Code>(q[l]);
  }
  return error_of(numbers, d, m, grid);
}

// Weighted sums of codes, their squares and products.
struct Sums {
  float q = 0, qq = 0, xq = 0;
};
template <typename Grid>
Sums sums_of(const Numbers& numbers, float inverse, float m, const Grid& grid) {
  const auto [x, importance] = numbers;
  Lanes sq{}, sqq{}, sxq{};
  for (size_t i = 0; i < x.size(); i += kLanes) {
    const Lanes q = grid.round(&x[i], inverse, m);
    for (size_t l = 0; l < kLanes; ++l) {
      const float weighted = importance.of(x[i + l]) * q[l];
      sq[l] += weighted;
      sqq[l] += weighted * q[l];
      sxq[l] += weighted * x[i + l];
    }
  }
  return {sum(sq), sum(sqq), sum(sxq)};
}

// --- x ~ d * q ---

// Keeps the scale with the least error.
template <typename Grid>
class SymmetricSearch {
 public:
  SymmetricSearch(const Numbers& x, const Grid& grid) : x_(x), grid_(grid) { offer(0); }

  // Whether d became the best one.
  bool offer(float d) {
    d = as_half(d);
    const float error = error_of(x_, d, 0, grid_);
    if (!(error < best_.error)) return false;
    best_ = {d, error};
    return true;
  }
  // Notes the best scale for the codes that another one gives, if what is left of x is less than before.
  void consider(float inverse) {
    const Sums s = sums_of(x_, inverse, 0, grid_);
    if (!(s.qq > 0)) return;
    const float explained = s.xq / s.qq * s.xq;
    if (explained > most_) most_ = explained, noted_ = s.xq / s.qq;
  }
  void offer_noted() { offer(noted_); }
  // Improves the best by turns.
  void settle() {
    for (int turn = 0; turn < kTurns; ++turn) {
      const Sums s = sums_of(x_, inverse_of(best_.d), 0, grid_);
      if (!(s.qq > 0) || !offer(s.xq / s.qq)) return;
    }
  }
  const SymmetricFit& best() const { return best_; }

 private:
  const Numbers& x_;
  const Grid& grid_;
  float most_ = 0, noted_ = 0;
  SymmetricFit best_{0, std::numeric_limits<double>::infinity()};
};

template <typename Grid>
SymmetricFit fit(const Numbers& x, const Grid& grid, int tries, std::span<int8_t> codes) {
  CHECK(x.x.size() <= kMost && x.x.size() % kLanes == 0);
  float extreme = 0;
  for (const float value : x.x) extreme = std::abs(value) > std::abs(extreme) ? value : extreme;
  SymmetricSearch search(x, grid);
  if (extreme != 0) {
    // The extreme becomes the lowest code, of which there may be more, or the highest.
    for (const float end : {grid.low(), grid.high()}) {
      search.offer(extreme / end);
      for (int i = -tries; i <= tries; ++i) search.consider((end + grid.step() * static_cast<float>(i)) / extreme);
    }
    search.offer_noted();
    search.settle();
  }
  SymmetricFit best = search.best();
  best.error = nearest(x, best.d, 0, grid, codes);
  return best;
}

// --- x ~ d * q + m ---

struct Line {
  float d = 0, m = 0;
};

// Scale and offset that fit x to codes best, n and x being the sums of weights and of weighted numbers; nothing where
// all codes are alike.
bool fit_line(float n, float x, const Sums& s, Offset offset, Line& line) {
  const float determinant = n * s.qq - s.q * s.q;
  if (!(determinant > 0)) return false;
  line = {(n * s.xq - x * s.q) / determinant, (s.qq * x - s.q * s.xq) / determinant};
  if (offset == Offset::not_positive && line.m > 0) line = {s.qq > 0 ? s.xq / s.qq : 0.0F, 0};
  return true;
}

class OffsetSearch {
 public:
  OffsetSearch(const Numbers& x, int high, Offset offset, bool is_stored)
      : x_(x), grid_({0, high}), offset_(offset), is_stored_(is_stored) {
    Lanes weights{}, weighted{};
    for (size_t i = 0; i < x.x.size(); i += kLanes) {
      for (size_t l = 0; l < kLanes; ++l) {
        const float weight = x.importance.of(x.x[i + l]);
        weights[l] += weight;
        weighted[l] += weight * x.x[i + l];
      }
    }
    weight_ = sum(weights);
    sum_ = sum(weighted);
  }

  bool offer(Line line) {
    if (is_stored_) line = {as_half(line.d), as_half(line.m)};
    const float error = error_of(x_, line.d, line.m, grid_);
    if (!(error < best_.error)) return false;
    best_ = {line.d, line.m, error};
    return true;
  }
  void consider(float inverse, float m) {
    const Sums s = sums_of(x_, inverse, m, grid_);
    Line line;
    if (!fit_line(weight_, sum_, s, offset_, line)) return;
    const float explained = line.d * s.xq + line.m * sum_;
    if (explained > most_) most_ = explained, noted_ = line;
  }
  void offer_noted() { offer(noted_); }
  void settle() {
    for (int turn = 0; turn < kTurns; ++turn) {
      const Sums s = sums_of(x_, inverse_of(best_.d), best_.m, grid_);
      Line line;
      if (!fit_line(weight_, sum_, s, offset_, line) || !offer(line)) return;
    }
  }
  const OffsetFit& best() const { return best_; }

 private:
  const Numbers& x_;
  RangeGrid grid_;
  Offset offset_;
  bool is_stored_;
  float weight_ = 0, sum_ = 0;  // of the weights, and of the weighted numbers
  float most_ = -std::numeric_limits<float>::infinity();
  Line noted_;
  OffsetFit best_{0, 0, std::numeric_limits<double>::infinity()};
};

}  // namespace

float as_half(float value) {
  return float_from_half(half_from_float(std::min(kLargestHalf, std::max(-kLargestHalf, value))));
}

Importance importance_by_size(std::span<const float> x) {
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  const double size = std::sqrt(squares / static_cast<double>(x.size()));
  if (size < 1e-30) return {};  // what the inverse would not fit in a float
  return {1, static_cast<float>(1 / size)};
}

SymmetricFit fit_symmetric(const Numbers& x, CodeRange range, int tries, std::span<int8_t> codes) {
  return fit(x, RangeGrid(range), tries, codes);
}

SymmetricFit fit_table(const Numbers& x, const ValueTable& table, int tries, std::span<int8_t> values) {
  return fit(x, TableGrid(table), tries, values);
}

OffsetFit fit_offset(const Numbers& x, int high, Offset offset, bool is_stored, std::span<uint8_t> codes) {
  CHECK(x.x.size() <= kMost && x.x.size() % kLanes == 0);
  const auto [low_at, high_at] = std::ranges::minmax_element(x.x);
  const float least = offset == Offset::not_positive ? std::min(*low_at, 0.0F) : *low_at, most = *high_at;
  const auto top = static_cast<float>(high);
  OffsetSearch search(x, high, offset, is_stored);
  search.offer({0, std::min(least, most)});
  const float range = most - least;
  if (range > 0) {
    search.offer({range / top, least});
    for (int i = 0; i <= 24; ++i) search.consider(top * (0.6F + 0.02F * static_cast<float>(i)) / range, least);
    search.offer_noted();
    search.settle();
  }
  OffsetFit best = search.best();
  best.error = nearest(x, best.d, best.m, RangeGrid({0, high}), codes);
  return best;
}

double nearest_symmetric(const Numbers& x, float d, CodeRange range, std::span<int8_t> codes) {
  return nearest(x, d, 0, RangeGrid(range), codes);
}

double nearest_table(const Numbers& x, float d, const ValueTable& table, std::span<int8_t> values) {
  return nearest(x, d, 0, TableGrid(table), values);
}

double nearest_offset(const Numbers& x, float d, float m, int high, std::span<uint8_t> codes) {
  return nearest(x, d, m, RangeGrid({0, high}), codes);
}

}  // namespace nanomind
