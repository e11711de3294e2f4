// SPDX-License-Identifier: Apache-2.0
#include "convert/scale_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/result.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

constexpr size_t kLanes = 8;  // sums are kept in lanes, so that they are vectors and still have one order
constexpr size_t kMost = 256;
constexpr float kLargestHalf = 65504.0F;
constexpr int kTurns = 3;

// The compiler makes two halves of them where the machine's vectors are shorter.
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using IntLanes [[gnu::vector_size(kLanes * sizeof(int32_t))]] = int32_t;

void load(const float* x, Lanes& lanes) { std::memcpy(&lanes, x, sizeof lanes); }

float sum(const Lanes& lanes) {
  float total = 0;
  for (size_t l = 0; l < kLanes; ++l) total += lanes[l];
  return total;
}

void clamp(Lanes& x, float low, float high) {
  const Lanes lows = Lanes{} + low, highs = Lanes{} + high;
  x = x > lows ? x : lows;
  x = x < highs ? x : highs;
}

// Of |x| < 2^22 the nearest whole numbers, ties to even.
void round_to_integer(Lanes& x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23
  x = (x + kMagic) - kMagic;
}

// How much errors of x count: see Importance.
void importance_of(const Importance& importance, const Lanes& x, Lanes& weights) {
  const auto magnitude = reinterpret_cast<Lanes>(reinterpret_cast<IntLanes>(x) & 0x7FFFFFFF);
  weights = importance.floor + importance.slope * magnitude;
}

// f(), in vectors of kLanes floats where the machine has them. The results are the same bits either way: sums have one
// order, and no product is contracted with a sum.
#if defined(__x86_64__)
template <typename F>
[[gnu::target("avx2"), gnu::flatten]] auto in_wide_vectors(const F& f) {
  return f();
}
#endif
template <typename F>
auto in_vectors(const F& f) {
#if defined(__x86_64__)
  static const bool are_wide = __builtin_cpu_supports("avx2");
  if (are_wide) return in_wide_vectors(f);
#endif
  return f();
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
  void round(const Lanes& x, float inverse, float m, Lanes& q) const {
    q = (x - m) * inverse;
    clamp(q, low_, high_);
    round_to_integer(q);
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
  void round(const Lanes& x, float inverse, float m, Lanes& q) const {
    Lanes place = 2 * ((x - m) * inverse) + ValueTable::kMiddle;
    clamp(place, 0, ValueTable::kLast);
    float nearest[kLanes];
    for (size_t l = 0; l < kLanes; ++l) nearest[l] = table_.at(static_cast<int>(place[l]));
    load(nearest, q);
  }

 private:
  const ValueTable& table_;
};

// Sum of weighted squared errors of d * q + m with the nearest codes.
template <typename Grid>
float error_of(const Numbers& numbers, float d, float m, const Grid& grid) {
  const auto [x, importance] = numbers;
  const float inverse = inverse_of(d);
  Lanes total{}, v, q, weight;
  for (size_t i = 0; i < x.size(); i += kLanes) {
    load(&x[i], v);
    grid.round(v, inverse, m, q);
    importance_of(importance, v, weight);
    const Lanes off = v - (d * q + m);
    total += weight * off * off;
  }
  return sum(total);
}

template <typename Code, typename Grid>
float nearest(const Numbers& numbers, float d, float m, const Grid& grid, std::span<Code> codes) {
  const auto x = numbers.x;
  const float inverse = inverse_of(d);
  Lanes v, q;
  for (size_t i = 0; i < x.size(); i += kLanes) {
    load(&x[i], v);
    grid.round(v, inverse, m, q);
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
  Lanes sq{}, sqq{}, sxq{}, v, q, weighted;
  for (size_t i = 0; i < x.size(); i += kLanes) {
    load(&x[i], v);
    grid.round(v, inverse, m, q);
    importance_of(importance, v, weighted);
    weighted *= q;
    sq += weighted;
    sqq += weighted * q;
    sxq += weighted * v;
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
    Lanes weights{}, weighted{}, v, weight;
    for (size_t i = 0; i < x.x.size(); i += kLanes) {
      load(&x.x[i], v);
      importance_of(x.importance, v, weight);
      weights += weight;
      weighted += weight * v;
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

OffsetFit search_offset(const Numbers& x, int high, Offset offset, bool is_stored, std::span<uint8_t> codes) {
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
  return in_vectors([&] { return fit(x, RangeGrid(range), tries, codes); });
}

SymmetricFit fit_table(const Numbers& x, const ValueTable& table, int tries, std::span<int8_t> values) {
  return in_vectors([&] { return fit(x, TableGrid(table), tries, values); });
}

OffsetFit fit_offset(const Numbers& x, int high, Offset offset, bool is_stored, std::span<uint8_t> codes) {
  return in_vectors([&] { return search_offset(x, high, offset, is_stored, codes); });
}

double nearest_symmetric(const Numbers& x, float d, CodeRange range, std::span<int8_t> codes) {
  return in_vectors([&] { return nearest(x, d, 0, RangeGrid(range), codes); });
}

double nearest_table(const Numbers& x, float d, const ValueTable& table, std::span<int8_t> values) {
  return in_vectors([&] { return nearest(x, d, 0, TableGrid(table), values); });
}

double nearest_offset(const Numbers& x, float d, float m, int high, std::span<uint8_t> codes) {
  return in_vectors([&] { return nearest(x, d, m, RangeGrid({0, high}), codes); });
}

}  // namespace nanomind
