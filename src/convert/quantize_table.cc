// SPDX-License-Identifier: Apache-2.0
#include "convert/quantize_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "convert/scale_search.h"
#include "convert/super_search.h"
#include "tensor/half.h"

namespace nanomind {
namespace {

constexpr int kTries = 10;

constexpr int8_t kMxfp4Rising[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
constexpr int kMxfp4Most = 12;
constexpr ValueTable kIq4Table(kIq4Values), kMxfp4Table(kMxfp4Rising);

// The place of each value in a table.
class Places {
 public:
  constexpr explicit Places(const int8_t (&table)[16]) : places_{} {
    for (int i = 15; i >= 0; --i) places_[table[i] + 128] = static_cast<uint8_t>(i);
  }
  constexpr uint8_t operator[](int8_t value) const { return places_[value + 128]; }

 private:
  std::array<uint8_t, 256> places_;
};
constexpr Places kIq4Places(kIq4Values), kMxfp4Places(kMxfp4Values);

// Low nibbles of the block's first half, high nibbles of its second.
void put_places(std::span<const int8_t> values, const Places& places, uint8_t* qs) {
  for (int j = 0; j < kBlock / 2; ++j)
    qs[j] = static_cast<uint8_t>(places[values[j]] | places[values[j + kBlock / 2]] << 4);
}

Numbers by_size(const float* x) { return {{x, kBlock}, importance_by_size({x, kBlock})}; }

struct Iq4Codes {
  static constexpr int kSubs = kSuperBlock / kBlock, kWidth = kBlock;
  float scale(const Numbers& x, std::span<int8_t> values) const { return fit_table(x, kIq4Table, kTries, values).d; }
  double nearest(const Numbers& x, float d, std::span<int8_t> values) const {
    return nearest_table(x, d, kIq4Table, values);
  }
};

}  // namespace

void quantize(const float* x, BlockIQ4_NL& block) {
  std::array<int8_t, kBlock> values;
  block.d = half_from_float(fit_table(by_size(x), kIq4Table, kTries, values).d);
  put_places(values, kIq4Places, block.qs);
}

void quantize(const float* x, BlockIQ4_XS& block) {
  const auto t = SymmetricQuantizer<Iq4Codes>(x, {}, {-32, 31}).run();
  block = {};
  block.d = half_from_float(t.d);
  for (int s = 0; s < Iq4Codes::kSubs; ++s) {
    const int sc = t.sc[s] + 32;
    block.scales_l[s / 2] |= static_cast<uint8_t>((sc & 15) << (4 * (s % 2)));
    block.scales_h |= static_cast<uint16_t>((sc >> 4) << (2 * s));
    put_places(std::span(t.codes).subspan(static_cast<size_t>(s) * kBlock, kBlock), kIq4Places,
               block.qs + s * kBlock / 2);
  }
}

// The scale is a power of two: of those about the one that just covers the block, the best.
void quantize(const float* x, BlockMXFP4& block) {
  constexpr int kBias = 128, kLeast = -126, kMost = 124;  // floats hold the inverse, and the scale times 12
  float extreme = 0;
  for (int i = 0; i < kBlock; ++i) extreme = std::max(extreme, std::abs(x[i]));
  block = {};
  if (extreme == 0) return;
  const Numbers numbers = by_size(x);
  const int covering = std::ilogb(extreme / kMxfp4Most) + 1;
  double least = std::numeric_limits<double>::infinity();
  for (int exponent = covering - 2; exponent <= covering; ++exponent) {
    const int e = std::clamp(exponent, kLeast, kMost);
    std::array<int8_t, kBlock> values;
    const double error = nearest_table(numbers, std::ldexp(1.0F, e), kMxfp4Table, values);
    if (error >= least) continue;
    least = error;
    block.e = static_cast<uint8_t>(e + kBias);
    put_places(values, kMxfp4Places, block.qs);
  }
}

}  // namespace nanomind
