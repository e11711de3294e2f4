// SPDX-License-Identifier: Apache-2.0
// How each packed format yields codes, scales and floats to the AVX2 products, 8 rows at a time. Internal linkage, as
// everything that the files of this folder share.
#pragma once

#include "kernels/cpu/avx2/vectors.h"
#include "tensor/packed_layout.h"

namespace nanomind::avx2 {
namespace {

// w = scale[half] * (code - offset) + min, with one scale for a unit or one for each half of its columns. Codes are
// bytes of `bits` significant bits.
struct Traits {
  int bits;
  int offset;
  int halves;
  bool min;
};

// For 8 rows; only what the format has is set.
struct Scales {
  __m256 scale[2];
  __m256 min;
};

using Codes = __m256i[8];  // vector p: the four bytes of a row are those that dword p of an activation plane meets

[[gnu::always_inline]] inline const __m256i* vector(const uint8_t* bytes) {
  return reinterpret_cast<const __m256i*>(bytes);
}

[[gnu::always_inline]] inline __m256 widen_bytes(const uint8_t* b) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b))));
}
[[gnu::always_inline]] inline __m256 widen_signed_bytes(const int8_t* b) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b))));
}

template <int kLeft>
[[gnu::always_inline]] inline __m256i shift(__m256i v) {
  if constexpr (kLeft > 0) return _mm256_slli_epi16(v, kLeft);
  if constexpr (kLeft < 0) return _mm256_srli_epi16(v, -kLeft);
  return v;
}

// (a & mask) | c
[[gnu::always_inline]] inline __m256i merge(__m256i a, __m256i mask, __m256i c) {
  return _mm256_or_si256(_mm256_and_si256(a, mask), c);
}

[[gnu::always_inline]] inline void nibbles(__m256i v, __m256i& low, __m256i& high) {
  const __m256i mask = _mm256_set1_epi8(15);
  low = _mm256_and_si256(v, mask);
  high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
}

[[gnu::always_inline]] inline void nibbles(const uint8_t* bytes, __m256i& low, __m256i& high) {
  nibbles(_mm256_load_si256(vector(bytes)), low, high);
}

struct NothingPrepared {};

// In all formats `row` is 0 or 8, the first of the 8 rows.
struct Q4_0 {
  using Block = PackedQ4_0;
  static constexpr Traits kTraits{.bits = 4, .offset = 8, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g] + 4 * row, q[2 * g], q[2 * g + 1]); });
  }
};

struct Q4_1 {
  using Block = PackedQ4_1;
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
    s.min = widen_halves(b.m[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g] + 4 * row, q[2 * g], q[2 * g + 1]); });
  }
};

struct Q5_0 {
  using Block = PackedQ5_0;
  static constexpr Traits kTraits{.bits = 5, .offset = 16, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    const __m256i plane = _mm256_load_si256(vector(b.unit[unit].high + 4 * row));
    const __m256i bit = _mm256_set1_epi8(16);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      nibbles(b.unit[unit].codes[g] + 4 * row, q[2 * g], q[2 * g + 1]);
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
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = _mm256_load_si256(vector(b.codes[unit][p] + 4 * row)); });
  }
};

struct Q4_K {
  using Block = PackedQ4_K;
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
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
    s.min = _mm256_mul_ps(minus_dmin, widen_bytes(p.min[unit] + row));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g] + 4 * row, q[2 * g], q[2 * g + 1]); });
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

// Float formats: 8 rows of a column.
struct F32 {
  using Block = PackedFloat;
  [[gnu::always_inline]] static __m256 widen(const float* rows) { return _mm256_load_ps(rows); }
};

struct F16 {
  using Block = PackedHalf;
  [[gnu::always_inline]] static __m256 widen(const uint16_t* rows) { return widen_halves(rows); }
};

struct Bf16 {
  using Block = PackedHalf;
  [[gnu::always_inline]] static __m256 widen(const uint16_t* rows) {
    const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(rows));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

}  // namespace
}  // namespace nanomind::avx2
