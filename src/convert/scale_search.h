// SPDX-License-Identifier: Apache-2.0
// Searches for the scale, or scale and offset, by which small integers stand for a block of numbers with the least sum
// of squared errors, each counted by the importance of its number. For given codes the best scale is a least-squares
// fit and for a given scale the best codes are the nearest, so the search starts from many scales near the one that
// just covers the block and improves the best by turns (Lloyd's method). Scales are compared as they will be stored:
// rounded to half.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace nanomind {

// How much the squared error of a number counts: floor + slope * |x|.
struct Importance {
  float floor = 1, slope = 0;
  float of(float x) const { return floor + slope * std::abs(x); }
};
// 1 + |x| / root of the mean square of `x`: large weights matter more, and all matter.
Importance importance_by_size(std::span<const float> x);

// Numbers that are quantised together. Sizes are multiples of 8, at most 256.
struct Numbers {
  std::span<const float> x;
  Importance importance;
};

// Codes from low (negative) to high.
struct CodeRange {
  int low = 0, high = 0;
};

// x ~ d * q.
struct SymmetricFit {
  float d = 0;  // exactly a half
  double error = 0;
};
// `tries`: scales to each side of the usual one; `codes` gets the nearest codes, as many as numbers.
SymmetricFit fit_symmetric(const Numbers& x, CodeRange range, int tries, std::span<int8_t> codes);

// Rising whole numbers, of which the nearest to x is looked up: what lies between two multiples of 1/2 has the same
// one, as the middle of two whole numbers is such a multiple.
class ValueTable {
 public:
  constexpr explicit ValueTable(std::span<const int8_t> rising) : low_(rising.front()), high_(rising.back()) {
    size_t i = 0;
    for (int place = 0; place < kPlaces; ++place) {
      while (i + 1 < rising.size() && rising[i] + rising[i + 1] <= place - kPlaces / 2) ++i;
      nearest_[static_cast<size_t>(place)] = rising[i];
    }
  }
  constexpr float low() const { return low_; }
  constexpr float high() const { return high_; }
  // The nearest to x stands at 2 * x + kMiddle, cut off, which is from 0 to kLast: at the ends what is beyond them.
  static constexpr int kPlaces = 512;
  static constexpr float kMiddle = kPlaces / 2, kLast = kPlaces - 1;
  float at(int place) const { return nearest_[static_cast<size_t>(place)]; }

 private:
  float low_, high_;
  std::array<float, kPlaces> nearest_{};
};

// x ~ d * v, v of `table`. `values` gets the nearest ones.
SymmetricFit fit_table(const Numbers& x, const ValueTable& table, int tries, std::span<int8_t> values);

// x ~ d * q + m, q from 0 to high.
struct OffsetFit {
  float d = 0, m = 0;
  double error = 0;
};
enum class Offset { any, not_positive };
// `is_stored`: d and m are halves themselves; otherwise they are fitted as they are.
OffsetFit fit_offset(const Numbers& x, int high, Offset offset, bool is_stored, std::span<uint8_t> codes);

// Sum of weighted squared errors of the nearest codes, which are left in `codes`.
double nearest_symmetric(const Numbers& x, float d, CodeRange range, std::span<int8_t> codes);
double nearest_table(const Numbers& x, float d, const ValueTable& table, std::span<int8_t> values);
double nearest_offset(const Numbers& x, float d, float m, int high, std::span<uint8_t> codes);

// `value` as a half holds it, kept within the range of halves.
float as_half(float value);

}  // namespace nanomind
