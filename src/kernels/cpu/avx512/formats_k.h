// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats of 256 columns.
#pragma once

#include "kernels/cpu/avx512/formats.h"

namespace nanomind::avx512 {
namespace {

// The codes of a unit of bit pairs.
[[gnu::always_inline]] inline void bit_pairs(const uint8_t (&planes)[2][64], Codes& q) {
  const __m512i mask = _mm512_set1_epi8(3);
  each<8>([&] [[gnu::always_inline]] (auto p) {
    q[p] = _mm512_and_si512(shift<-2 * (p % 4)>(_mm512_load_si512(planes[p / 4])), mask);
  });
}

struct Q2_K {
  using Block = PackedQ2_K;
  static constexpr Traits kTraits{.bits = 2, .offset = 0, .halves = 2, .min = true};
  struct Prepared {
    __m512 d, minus_dmin;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    p.d = widen_halves(b.d);
    p.minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), widen_halves(b.dmin));
  }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, Scales& s) {
    each<2>([&] [[gnu::always_inline]] (auto h) {
      const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(b.scales[2 * unit + h]));
      const __m512i both = _mm512_cvtepu8_epi32(bytes);
      s.scale[h] = _mm512_mul_ps(p.d, _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
      s.min[h] = _mm512_mul_ps(p.minus_dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
    });
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { bit_pairs(b.codes[unit], q); }
};

struct Q3_K {
  using Block = PackedQ3_K;
  static constexpr Traits kTraits{.bits = 3, .offset = 4, .halves = 2, .min = false};
  struct Prepared {
    alignas(64) int8_t scale[16][16];
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m512i low4 = _mm512_set1_epi8(15), top2 = _mm512_set1_epi8(0x30);
    const __m512i top = _mm512_load_si512(b.scales[8]);
    const auto store = [&] [[gnu::always_inline]] (int8_t* to, __m512i low, __m512i high) {
      const __m512i scale = merge(high, top2, _mm512_and_si512(low, low4));
      _mm512_store_si512(to, _mm512_sub_epi8(scale, _mm512_set1_epi8(32)));
    };
    const __m512i first = _mm512_load_si512(b.scales[0]), second = _mm512_load_si512(b.scales[4]);
    store(p.scale[0], first, shift<4>(top));
    store(p.scale[4], second, shift<2>(top));
    store(p.scale[8], shift<-4>(first), top);
    store(p.scale[12], shift<-4>(second), shift<-2>(top));
    p.d = widen_halves(b.d);
  }
  [[gnu::always_inline]] static void scales(const Block&, const Prepared& p, int unit, Scales& s) {
    s.scale[0] = _mm512_mul_ps(p.d, widen_signed_bytes(p.scale[2 * unit]));
    s.scale[1] = _mm512_mul_ps(p.d, widen_signed_bytes(p.scale[2 * unit + 1]));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    bit_pairs(b.unit[unit].low, q);
    const __m512i plane = _mm512_load_si512(b.unit[unit].high);
    const __m512i bit = _mm512_set1_epi8(4);
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = merge(shift<2 - p>(plane), bit, q[p]); });
  }
};

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
