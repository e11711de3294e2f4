// SPDX-License-Identifier: Apache-2.0
// How each packed integer format yields signed byte codes and float scales to the ARM matmuls: for a unit of 16 rows x
// 32 columns, w = scale * (code - kOffset) + min. Others: formats_k.h, formats_table.h. Private to kernels/cpu/neon and
// the folders built on it; everything here has internal linkage, because each of them compiles it with its own flags.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/table.h"
#include "tensor/packed_layout.h"

namespace nanomind {
namespace {

// Scales of one unit. Symmetric formats leave `min` alone; the second of each is for columns 16..31 of formats that
// have kScales of 2.
struct UnitScales {
  float scale[2][16];
  float min[2][16];
};

// Codes of four rows: vector p holds, row after row, the four codes that meet dword p of an activation plane.
using QuadCodes = int8x16_t[8];

inline void widen_halves(const uint16_t* h, float* out) {
  for (int i = 0; i < 16; i += 8) {
    const float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(h + i));
    vst1q_f32(out + i, vcvt_f32_f16(vget_low_f16(v)));
    vst1q_f32(out + i + 4, vcvt_high_f32_f16(v));
  }
}

// out[r] = halves[r] * factors[r], exact: 11 significant bits times at most 8.
inline void scale_halves(const uint16_t* h, int16x8_t factors_low, int16x8_t factors_high, float* out) {
  const int16x8_t factors[2] = {factors_low, factors_high};
  for (int i = 0; i < 2; ++i) {
    const float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(h + 8 * i));
    const float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(factors[i])));
    const float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(factors[i]));
    vst1q_f32(out + 8 * i, vmulq_f32(vcvt_f32_f16(vget_low_f16(v)), low));
    vst1q_f32(out + 8 * i + 4, vmulq_f32(vcvt_high_f32_f16(v), high));
  }
}

// Bytes of six bits from nibble `nibble` of `low` and, above it, field `field` of two bits of `top`.
inline uint8x16_t six_bits(uint8x16_t low, uint8x16_t top, int nibble, int field) {
  const uint8x16_t four = vandq_u8(vshlq_u8(low, vdupq_n_s8(static_cast<int8_t>(-4 * nibble))), vdupq_n_u8(15));
  const uint8x16_t two = vandq_u8(vshlq_u8(top, vdupq_n_s8(static_cast<int8_t>(-2 * field))), vdupq_n_u8(3));
  return vsliq_n_u8(four, two, 4);
}

// out[r] = halves[r] * factors[r].
inline void scale_halves(const uint16_t* h, int8x16_t factors, float* out) {
  scale_halves(h, vmovl_s8(vget_low_s8(factors)), vmovl_high_s8(factors), out);
}

inline void nibbles(const uint8_t (&vectors)[4][64], int quad, QuadCodes& codes) {
  const uint8x16_t mask = vdupq_n_u8(15);
  for (int g = 0; g < 4; ++g) {
    const uint8x16_t v = vld1q_u8(vectors[g] + 16 * quad);
    codes[2 * g] = vreinterpretq_s8_u8(vandq_u8(v, mask));
    codes[2 * g + 1] = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
  }
}

// Two vectors of codes whose bits above the low four come from `plane`: those of v's low nibbles start at bit kLow of
// the plane, those of its high nibbles at bit kHigh. kMask cuts the codes to their width.
template <int kLow, int kHigh, int kMask>
inline void nibbles_with_plane(uint8x16_t v, uint8x16_t plane, int8x16_t& low, int8x16_t& high) {
  uint8x16_t top = plane, bottom = plane;
  if constexpr (kHigh < 4) top = vshlq_n_u8(plane, 4 - kHigh);
  if constexpr (kHigh > 4) top = vshrq_n_u8(plane, kHigh - 4);
  if constexpr (kLow > 0) bottom = vshrq_n_u8(plane, kLow);
  const uint8x16_t mask = vdupq_n_u8(kMask);
  high = vreinterpretq_s8_u8(vandq_u8(vsriq_n_u8(top, v, 4), mask));
  low = vreinterpretq_s8_u8(vandq_u8(vsliq_n_u8(v, bottom, 4), mask));
}

// Codes of five bits, the fifth ones from one plane.
inline void five_bits(const uint8_t (&vectors)[4][64], const uint8_t (&plane)[64], int quad, QuadCodes& c) {
  const int at = 16 * quad;
  const uint8x16_t high = vld1q_u8(plane + at);
  nibbles_with_plane<0, 1, 31>(vld1q_u8(vectors[0] + at), high, c[0], c[1]);
  nibbles_with_plane<2, 3, 31>(vld1q_u8(vectors[1] + at), high, c[2], c[3]);
  nibbles_with_plane<4, 5, 31>(vld1q_u8(vectors[2] + at), high, c[4], c[5]);
  nibbles_with_plane<6, 7, 31>(vld1q_u8(vectors[3] + at), high, c[6], c[7]);
}

struct FormatQ4_0 {
  using Block = PackedQ4_0;
  static constexpr int kUnits = 2, kBits = 4, kOffset = 8, kScales = 1;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) { widen_halves(b.d[unit], s.scale[0]); }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) { nibbles(b.codes[unit], quad, c); }
};

struct FormatQ4_1 {
  using Block = PackedQ4_1;
  static constexpr int kUnits = 2, kBits = 4, kOffset = 0, kScales = 1;
  static constexpr bool kMin = true;
  static void scales(const Block& b, int unit, UnitScales& s) {
    widen_halves(b.d[unit], s.scale[0]);
    widen_halves(b.m[unit], s.min[0]);
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) { nibbles(b.codes[unit], quad, c); }
};

struct FormatQ5_0 {
  using Block = PackedQ5_0;
  static constexpr int kUnits = 2, kBits = 5, kOffset = 16, kScales = 1;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) { widen_halves(b.d[unit], s.scale[0]); }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    five_bits(b.unit[unit].codes, b.unit[unit].high, quad, c);
  }
};

struct FormatQ5_1 {
  using Block = PackedQ5_1;
  static constexpr int kUnits = 2, kBits = 5, kOffset = 0, kScales = 1;
  static constexpr bool kMin = true;
  static void scales(const Block& b, int unit, UnitScales& s) {
    widen_halves(b.d[unit], s.scale[0]);
    widen_halves(b.m[unit], s.min[0]);
  }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    five_bits(b.unit[unit].codes, b.unit[unit].high, quad, c);
  }
};

// Stored codes are the source's plus 128; flipping the top bit gives the source's back, so nothing is left to subtract.
struct FormatQ8_0 {
  using Block = PackedQ8_0;
  static constexpr int kUnits = 2, kBits = 8, kOffset = 0, kScales = 1;
  static constexpr bool kMin = false;
  static void scales(const Block& b, int unit, UnitScales& s) { widen_halves(b.d[unit], s.scale[0]); }
  static void codes(const Block& b, int unit, int quad, QuadCodes& c) {
    const uint8x16_t top = vdupq_n_u8(0x80);
    for (int p = 0; p < 8; ++p) c[p] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(b.codes[unit][p] + 16 * quad), top));
  }
};

}  // namespace
}  // namespace nanomind
