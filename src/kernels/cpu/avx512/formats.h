// SPDX-License-Identifier: Apache-2.0
// The weight formats as the products of this folder see them: codes and scales of a unit of 16 rows x 32 columns, or
// columns of floats.
#pragma once

#include "kernels/cpu/avx512/vectors.h"
#include "tensor/packed_layout.h"

namespace nanomind::avx512 {
namespace {

using Codes = __m512i[8];  // vector p meets dword p of an activation unit's planes

// w = scale[half] * (code - offset) + min, with one scale for a unit or one for each half of its columns.
struct Traits {
  int bits;  // of a code
  int offset;
  int halves;
  bool min;
};

// For 16 rows; only what the format has is set.
struct Scales {
  __m512 scale[2];
  __m512 min;
};

[[gnu::always_inline]] inline __m512 widen_bytes(const uint8_t* b) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(b))));
}
[[gnu::always_inline]] inline __m512 widen_signed_bytes(const int8_t* b) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(b))));
}

template <int kLeft>
[[gnu::always_inline]] inline __m512i shift(__m512i v) {
  if constexpr (kLeft > 0) return _mm512_slli_epi16(v, kLeft);
  if constexpr (kLeft < 0) return _mm512_srli_epi16(v, -kLeft);
  return v;
}

// (a & mask) | c
[[gnu::always_inline]] inline __m512i merge(__m512i a, __m512i mask, __m512i c) {
  return _mm512_ternarylogic_epi32(a, mask, c, 0xEA);
}

[[gnu::always_inline]] inline void nibbles(const uint8_t* vector, __m512i& low, __m512i& high) {
  const __m512i v = _mm512_load_si512(vector);
  const __m512i mask = _mm512_set1_epi8(15);
  low = _mm512_and_si512(v, mask);
  high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
}

// What a code of 0 stands for in half h of a unit: the format's min, or what its offset takes away.
template <typename Format>
[[gnu::always_inline]] inline __m512 value_of_zero(const Scales& s, int h) {
  if constexpr (Format::kTraits.min) return s.min;
  return _mm512_mul_ps(s.scale[h], _mm512_set1_ps(-Format::kTraits.offset));
}

struct NothingPrepared {};

struct Q4_0 {
  using Block = PackedQ4_0;
  static constexpr Traits kTraits{.bits = 4, .offset = 8, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g], q[2 * g], q[2 * g + 1]); });
  }
};

struct Q4_1 {
  using Block = PackedQ4_1;
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
    s.min = widen_halves(b.m[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g], q[2 * g], q[2 * g + 1]); });
  }
};

struct Q5_0 {
  using Block = PackedQ5_0;
  static constexpr Traits kTraits{.bits = 5, .offset = 16, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    const __m512i plane = _mm512_load_si512(b.unit[unit].high);
    const __m512i bit = _mm512_set1_epi8(16);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      nibbles(b.unit[unit].codes[g], q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 2 * g>(plane), bit, q[2 * g]);
      q[2 * g + 1] = merge(shift<3 - 2 * g>(plane), bit, q[2 * g + 1]);
    });
  }
};

struct Q8_0 {
  using Block = PackedQ8_0;
  static constexpr Traits kTraits{.bits = 8, .offset = 128, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = _mm512_load_si512(b.codes[unit][p]); });
  }
};

struct Q4_K {
  using Block = PackedQ4_K;
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
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
    s.min = _mm512_mul_ps(p.minus_dmin, widen_bytes(p.min[unit]));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g], q[2 * g], q[2 * g + 1]); });
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

// Float formats: a column of 16 rows.
struct F32 {
  using Block = PackedFloat;
  [[gnu::always_inline]] static __m512 widen(const float* column) { return _mm512_load_ps(column); }
};

struct F16 {
  using Block = PackedHalf;
  [[gnu::always_inline]] static __m512 widen(const uint16_t* column) { return widen_halves(column); }
};

struct Bf16 {
  using Block = PackedHalf;
  [[gnu::always_inline]] static __m512 widen(const uint16_t* column) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(column));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
};

}  // namespace
}  // namespace nanomind::avx512
