// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the formats of 256 columns.
#pragma once

#include "kernels/cpu/neon/formats.h"

namespace nanomind {
namespace {

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
    scale_halves(b.d, widen_low(scale), widen_high(scale), s.scale[0]);
    const int8x16_t negative = vnegq_s8(vreinterpretq_s8_u8(min));
    scale_halves(b.dmin, vmovl_s8(vget_low_s8(negative)), vmovl_high_s8(negative), s.min[0]);
  }

 private:
  static uint8x16_t six_bits(uint8x16_t low, uint8x16_t top, int nibble, int field) {
    const uint8x16_t four = vandq_u8(vshlq_u8(low, vdupq_n_s8(static_cast<int8_t>(-4 * nibble))), vdupq_n_u8(15));
    const uint8x16_t two = vandq_u8(vshlq_u8(top, vdupq_n_s8(static_cast<int8_t>(-2 * field))), vdupq_n_u8(3));
    return vsliq_n_u8(four, two, 4);
  }
  static int16x8_t widen_low(uint8x16_t v) { return vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(v))); }
  static int16x8_t widen_high(uint8x16_t v) { return vreinterpretq_s16_u16(vmovl_high_u8(v)); }
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
      const int8x16_t v = vld1q_s8(b.scales[2 * unit + half]);
      scale_halves(b.d, vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v), s.scale[half]);
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
