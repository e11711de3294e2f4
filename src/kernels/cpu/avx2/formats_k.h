// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats of 256 columns.
#pragma once

#include "kernels/cpu/avx2/formats.h"

namespace nanomind::avx2 {
namespace {

// The codes of a unit of bit pairs.
[[gnu::always_inline]] inline void bit_pairs(const uint8_t (&planes)[2][64], int row, Codes& q) {
  const __m256i mask = _mm256_set1_epi8(3);
  each<8>([&] [[gnu::always_inline]] (auto p) {
    q[p] = _mm256_and_si256(shift<-2 * (p % 4)>(_mm256_load_si256(vector(planes[p / 4] + 4 * row))), mask);
  });
}

struct Q2_K {
  using Block = PackedQ2_K;
  static constexpr Traits kTraits{.bits = 2, .offset = 0, .halves = 2, .min = true};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    const __m256 d = widen_halves(b.d + row);
    const __m256 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), widen_halves(b.dmin + row));
    each<2>([&] [[gnu::always_inline]] (auto h) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.scales[2 * unit + h] + row));
      const __m256i both = _mm256_cvtepu8_epi32(bytes);
      s.scale[h] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(15))));
      s.min[h] = _mm256_mul_ps(minus_dmin, _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4)));
    });
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    bit_pairs(b.codes[unit], row, q);
  }
};

struct Q3_K {
  using Block = PackedQ3_K;
  static constexpr Traits kTraits{.bits = 3, .offset = 4, .halves = 2, .min = false};
  struct Prepared {
    alignas(32) int8_t scale[16][16];
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m256i low4 = _mm256_set1_epi8(15), top2 = _mm256_set1_epi8(0x30);
    const auto store = [&] [[gnu::always_inline]] (int8_t* to, __m256i low, __m256i high) {
      const __m256i scale = merge(high, top2, _mm256_and_si256(low, low4));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_sub_epi8(scale, _mm256_set1_epi8(32)));
    };
    each<2>([&] [[gnu::always_inline]] (auto i) {
      const __m256i first = _mm256_load_si256(vector(b.scales[2 * i]));
      const __m256i second = _mm256_load_si256(vector(b.scales[4 + 2 * i]));
      const __m256i top = _mm256_load_si256(vector(b.scales[8 + 2 * i]));
      store(p.scale[2 * i], first, shift<4>(top));
      store(p.scale[4 + 2 * i], second, shift<2>(top));
      store(p.scale[8 + 2 * i], shift<-4>(first), top);
      store(p.scale[12 + 2 * i], shift<-4>(second), shift<-2>(top));
    });
  }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, int row, Scales& s) {
    const __m256 d = widen_halves(b.d + row);
    s.scale[0] = _mm256_mul_ps(d, widen_signed_bytes(p.scale[2 * unit] + row));
    s.scale[1] = _mm256_mul_ps(d, widen_signed_bytes(p.scale[2 * unit + 1] + row));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    bit_pairs(b.unit[unit].low, row, q);
    const __m256i plane = _mm256_load_si256(vector(b.unit[unit].high + 4 * row));
    const __m256i bit = _mm256_set1_epi8(4);
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = merge(shift<2 - p>(plane), bit, q[p]); });
  }
};

// Scales and mins of 6 bits for each unit.
template <typename PackedBlock>
struct SixBitScales {
  using Block = PackedBlock;
  struct Prepared {
    alignas(32) uint8_t scale[8][16];
    alignas(32) uint8_t min[8][16];
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m256i low4 = _mm256_set1_epi8(15), top2 = _mm256_set1_epi8(0x30);
    const auto store = [&] [[gnu::always_inline]] (uint8_t* to, __m256i low, __m256i high) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), merge(high, top2, _mm256_and_si256(low, low4)));
    };
    each<2>([&] [[gnu::always_inline]] (auto i) {
      const __m256i scale = _mm256_load_si256(vector(b.scale_low + 32 * i));
      const __m256i min = _mm256_load_si256(vector(b.min_low + 32 * i));
      const __m256i top = _mm256_load_si256(vector(b.top + 32 * i));
      store(p.scale[2 * i], scale, shift<4>(top));
      store(p.scale[4 + 2 * i], shift<-4>(scale), shift<2>(top));
      store(p.min[2 * i], min, top);
      store(p.min[4 + 2 * i], shift<-4>(min), shift<-2>(top));
    });
  }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, int row, Scales& s) {
    s.scale[0] = _mm256_mul_ps(widen_halves(b.d + row), widen_bytes(p.scale[unit] + row));
    const __m256 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), widen_halves(b.dmin + row));
    s.min[0] = _mm256_mul_ps(minus_dmin, widen_bytes(p.min[unit] + row));
  }
};

struct Q4_K : SixBitScales<PackedQ4_K> {
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    codes_of(b.codes[unit], row, q);
  }
};

struct Q5_K : SixBitScales<PackedQ5_K> {
  static constexpr Traits kTraits{.bits = 5, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    codes_of(b.unit[unit].codes, b.unit[unit].high, row, q);
  }
};

struct Q6_K {
  using Block = PackedQ6_K;
  static constexpr Traits kTraits{.bits = 6, .offset = 32, .halves = 2, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    const __m256 d = widen_halves(b.d + row);
    s.scale[0] = _mm256_mul_ps(d, widen_signed_bytes(b.scales[2 * unit] + row));
    s.scale[1] = _mm256_mul_ps(d, widen_signed_bytes(b.scales[2 * unit + 1] + row));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    const __m256i bits = _mm256_set1_epi8(0x30);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      const __m256i plane = _mm256_load_si256(vector(b.unit[unit].high[g / 2] + 4 * row));
      nibbles(b.unit[unit].codes[g] + 4 * row, q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 4 * (g % 2)>(plane), bits, q[2 * g]);
      q[2 * g + 1] = merge(shift<2 - 4 * (g % 2)>(plane), bits, q[2 * g + 1]);
    });
  }
};

}  // namespace
}  // namespace nanomind::avx2
