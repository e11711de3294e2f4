// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats of 256 columns.
#pragma once

#include "kernels/cpu/avx512/formats.h"

namespace nanomind::avx512 {
namespace {

// Scales and mins of 6 bits for each unit.
template <typename PackedBlock>
struct SixBitScales {
  using Block = PackedBlock;
  struct Prepared {
    alignas(64) uint8_t scale[8][16];
    alignas(64) uint8_t min[8][16];
    __m512 d, minus_dmin;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m512i scale = _mm512_load_si512(b.scale_low), min = _mm512_load_si512(b.min_low);
    const __m512i top = _mm512_load_si512(b.top);
    const __m512i low4 = _mm512_set1_epi8(15), top2 = _mm512_set1_epi8(0x30);
    const auto store = [&] [[gnu::always_inline]] (uint8_t* to, __m512i low, __m512i high) {
      _mm512_store_si512(to, merge(high, top2, _mm512_and_si512(low, low4)));
    };
    store(p.scale[0], scale, shift<4>(top));
    store(p.scale[4], shift<-4>(scale), shift<2>(top));
    store(p.min[0], min, top);
    store(p.min[4], shift<-4>(min), shift<-2>(top));
    p.d = widen_halves(b.d);
    p.minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), widen_halves(b.dmin));
  }
  [[gnu::always_inline]] static void scales(const Block&, const Prepared& p, int unit, Scales& s) {
    s.scale[0] = _mm512_mul_ps(p.d, widen_bytes(p.scale[unit]));
    s.min[0] = _mm512_mul_ps(p.minus_dmin, widen_bytes(p.min[unit]));
  }
};

struct Q4_K : SixBitScales<PackedQ4_K> {
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { codes_of(b.codes[unit], q); }
};

struct Q5_K : SixBitScales<PackedQ5_K> {
  static constexpr Traits kTraits{.bits = 5, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    codes_of(b.unit[unit].codes, b.unit[unit].high, q);
  }
};

struct Q6_K {
  using Block = PackedQ6_K;
  static constexpr Traits kTraits{.bits = 6, .offset = 32, .halves = 2, .min = false};
  struct Prepared {
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) { p.d = widen_halves(b.d); }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, Scales& s) {
    s.scale[0] = _mm512_mul_ps(p.d, widen_signed_bytes(b.scales[2 * unit]));
    s.scale[1] = _mm512_mul_ps(p.d, widen_signed_bytes(b.scales[2 * unit + 1]));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    const __m512i bits = _mm512_set1_epi8(0x30);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      const __m512i plane = _mm512_load_si512(b.unit[unit].high[g / 2]);
      nibbles(b.unit[unit].codes[g], q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 4 * (g % 2)>(plane), bits, q[2 * g]);
      q[2 * g + 1] = merge(shift<2 - 4 * (g % 2)>(plane), bits, q[2 * g + 1]);
    });
  }
};

}  // namespace
}  // namespace nanomind::avx512
