// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the formats of 256 columns.
#pragma once

#include "kernels/cpu/neon/formats.h"

namespace nanomind {
namespace {

struct FormatQ2_K {
  using Block = PackedQ2_K;
  static constexpr int kUnits = 8, kBits = 2, kOffset = 0, kScales = 2;
  static constexpr bool kMin = true;
  static void scales(const Block& b, int unit, UnitScales& s) {
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t both = vld1q_u8(b.scales[2 * unit + half]);
      scale_halves(b.d, vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))), s.scale[half]);
      scale_halves(b.dmin, vnegq_s8(vreinterpretq_s8_u8(vshrq_n_u8(both, 4))), s.min[half]);
    }
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    const uint8x16_t mask = vdupq_n_u8(3);
    for (int p = 0; p < 2; ++p) {
      const uint8x16_t v = vld1q_u8(b.codes[unit][p] + 16 * quad);
      c[4 * p] = vreinterpretq_s8_u8(vandq_u8(v, mask));
      c[4 * p + 1] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v, 2), mask));
      c[4 * p + 2] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(v, 4), mask));
      c[4 * p + 3] = vreinterpretq_s8_u8(vshrq_n_u8(v, 6));
    }
  }
};

struct FormatQ3_K {
  using Block = PackedQ3_K;
  static constexpr int kUnits = 8, kBits = 3, kOffset = 4, kScales = 2;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) {
    for (int half = 0; half < 2; ++half) {
      const int i = 2 * unit + half;
      const uint8x16_t scale = six_bits(vld1q_u8(b.scales[i % 8]), vld1q_u8(b.scales[8 + i % 4]), i / 8, i / 4);
      scale_halves(b.d, vsubq_s8(vreinterpretq_s8_u8(scale), vdupq_n_s8(32)), s.scale[half]);
    }
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    const uint8x16_t first = vld1q_u8(b.unit[unit].low[0] + 16 * quad);
    const uint8x16_t second = vld1q_u8(b.unit[unit].low[1] + 16 * quad);
    const uint8x16_t high = vld1q_u8(b.unit[unit].high + 16 * quad);
    c[0] = three_bits(first, high);
    c[1] = three_bits(vshrq_n_u8(first, 2), vshrq_n_u8(high, 1));
    c[2] = three_bits(vshrq_n_u8(first, 4), vshrq_n_u8(high, 2));
    c[3] = three_bits(vshrq_n_u8(first, 6), vshrq_n_u8(high, 3));
    c[4] = three_bits(second, vshrq_n_u8(high, 4));
    c[5] = three_bits(vshrq_n_u8(second, 2), vshrq_n_u8(high, 5));
    c[6] = three_bits(vshrq_n_u8(second, 4), vshrq_n_u8(high, 6));
    c[7] = three_bits(vshrq_n_u8(second, 6), vshrq_n_u8(high, 7));
  }

 private:
  // The lowest two bits of `pairs`, and above them the lowest of `bits`.
  static int8x16_t three_bits(uint8x16_t pairs, uint8x16_t bits) {
    return vreinterpretq_s8_u8(vandq_u8(vsliq_n_u8(pairs, bits, 2), vdupq_n_u8(7)));
  }
};

// Scales and mins of 6 bits for each unit.
template <class PackedBlock>
struct SixBitScales {
  using Block = PackedBlock;
  static constexpr int kUnits = 8, kOffset = 0, kScales = 1;
  static constexpr bool kMin = true;
  static void scales(const Block& b, int unit, UnitScales& s) {
    const int at = 16 * (unit % 4), half = unit / 4;
    const uint8x16_t top = vld1q_u8(b.top + at);
    const uint8x16_t scale = six_bits(vld1q_u8(b.scale_low + at), top, half, half);
    const uint8x16_t min = six_bits(vld1q_u8(b.min_low + at), top, half, half + 2);
    scale_halves(b.d, vreinterpretq_s8_u8(scale), s.scale[0]);
    scale_halves(b.dmin, vnegq_s8(vreinterpretq_s8_u8(min)), s.min[0]);
  }
};

struct FormatQ4_K : SixBitScales<PackedQ4_K> {
  static constexpr int kBits = 4;
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) { nibbles(b.codes[unit], quad, c); }
};

struct FormatQ5_K : SixBitScales<PackedQ5_K> {
  static constexpr int kBits = 5;
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    five_bits(b.unit[unit].codes, b.unit[unit].high, quad, c);
  }
};

struct FormatQ6_K {
  using Block = PackedQ6_K;
  static constexpr int kUnits = 8, kBits = 6, kOffset = 32, kScales = 2;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) {
    for (int half = 0; half < 2; ++half) {
      scale_halves(b.d, vld1q_s8(b.scales[2 * unit + half]), s.scale[half]);
    }
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    const Block::Unit& u = b.unit[unit];
    const int at = 16 * quad;
    for (int p = 0; p < 2; ++p) {
      const uint8x16_t high = vld1q_u8(u.high[p] + at);
      nibbles_with_plane<0, 2, 63>(vld1q_u8(u.codes[2 * p] + at), high, c[4 * p], c[4 * p + 1]);
      nibbles_with_plane<4, 6, 63>(vld1q_u8(u.codes[2 * p + 1] + at), high, c[4 * p + 2], c[4 * p + 3]);
    }
  }
};

}  // namespace
}  // namespace nanomind
