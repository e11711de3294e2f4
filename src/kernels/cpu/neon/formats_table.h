// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the formats whose codes are entries of a table, which are signed already.
#pragma once

#include "kernels/cpu/neon/formats.h"
#include "tensor/block.h"

namespace nanomind {
namespace {

inline void look_up(const uint8_t (&vectors)[4][64], const int8_t (&values)[16], int quad, QuadCodes& c) {
  const int8x16_t table = vld1q_s8(values);
  for (int g = 0; g < 4; ++g) {
    const uint8x16_t v = vld1q_u8(vectors[g] + 16 * quad);
    c[2 * g] = vqtbl1q_s8(table, vandq_u8(v, vdupq_n_u8(15)));
    c[2 * g + 1] = vqtbl1q_s8(table, vshrq_n_u8(v, 4));
  }
}

struct FormatIQ4_NL {
  using Block = PackedIQ4_NL;
  static constexpr int kUnits = 2, kBits = 8, kOffset = 0, kScales = 1;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) { widen_halves(b.d[unit], s.scale[0]); }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) { look_up(b.codes[unit], kIq4Values, quad, c); }
};

struct FormatIQ4_XS {
  using Block = PackedIQ4_XS;
  static constexpr int kUnits = 8, kBits = 8, kOffset = 0, kScales = 1;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) {
    const uint8x16_t low = vld1q_u8(b.scale_low[unit / 2]), top = vld1q_u8(b.scale_top[unit / 4]);
    const uint8x16_t scale = six_bits(low, top, unit % 2, unit % 4);
    scale_halves(b.d, vsubq_s8(vreinterpretq_s8_u8(scale), vdupq_n_s8(32)), s.scale[0]);
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) { look_up(b.codes[unit], kIq4Values, quad, c); }
};

// Entries are at most 12 in magnitude.
struct FormatMXFP4 {
  using Block = PackedMXFP4;
  static constexpr int kUnits = 4, kBits = 4, kOffset = 0, kScales = 1;
  static constexpr bool kMin = false;
  // 2^(e - 128), and 0 where that is below the smallest normal float.
  static void scales(const Block& b, int unit, UnitScales& s) {
    const uint8x16_t less = vqsubq_u8(vld1q_u8(b.e[unit]), vdupq_n_u8(1));
    const uint16x8_t halves[2] = {vmovl_u8(vget_low_u8(less)), vmovl_high_u8(less)};
    for (int i = 0; i < 2; ++i) {
      const uint32x4_t low = vshlq_n_u32(vmovl_u16(vget_low_u16(halves[i])), 23);
      const uint32x4_t high = vshlq_n_u32(vmovl_high_u16(halves[i]), 23);
      vst1q_f32(s.scale[0] + 8 * i, vreinterpretq_f32_u32(low));
      vst1q_f32(s.scale[0] + 8 * i + 4, vreinterpretq_f32_u32(high));
    }
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) { look_up(b.codes[unit], kMxfp4Values, quad, c); }
};

}  // namespace
}  // namespace nanomind
