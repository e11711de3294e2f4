// SPDX-License-Identifier: Apache-2.0
// How each packed format yields codes, scales and floats to the AVX2 products, 8 rows at a time. Integer formats of 256
// columns: formats_k.h; those with tables: formats_table.h. Internal linkage, as everything that the files of this
// folder share.
#pragma once

#include "kernels/cpu/avx2/vectors.h"
#include "tensor/packed_layout.h"

namespace nanomind::avx2 {
namespace {

// w = scale[half] * (code - offset) + min[half], with one of each for a unit or one for each half of its columns. Codes
// are bytes of `bits` significant bits.
struct Traits {
  int bits;
  int offset;
  int halves;
  bool min;
};

// For 8 rows; only what the format has is set.
struct Scales {
  __m256 scale[2];
  __m256 min[2];
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

// In what follows and in all formats `row` is 0 or 8, the first of the 8 rows.

// The codes of a unit of nibbles, and those with a plane of fifth bits.
[[gnu::always_inline]] inline void codes_of(const uint8_t (&vectors)[4][64], int row, Codes& q) {
  each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(vectors[g] + 4 * row, q[2 * g], q[2 * g + 1]); });
}
[[gnu::always_inline]] inline void codes_of(const uint8_t (&vectors)[4][64], const uint8_t (&high)[64], int row,
                                            Codes& q) {
  const __m256i plane = _mm256_load_si256(vector(high + 4 * row));
  const __m256i bit = _mm256_set1_epi8(16);
  each<4>([&] [[gnu::always_inline]] (auto g) {
    nibbles(vectors[g] + 4 * row, q[2 * g], q[2 * g + 1]);
    q[2 * g] = merge(shift<4 - 2 * g>(plane), bit, q[2 * g]);
    q[2 * g + 1] = merge(shift<3 - 2 * g>(plane), bit, q[2 * g + 1]);
  });
}

struct NothingPrepared {};

// A half float d for each unit, and m as its min.
template <typename PackedBlock>
struct OneScale {
  using Block = PackedBlock;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
};
template <typename PackedBlock>
struct ScaleAndMin : OneScale<PackedBlock> {
  [[gnu::always_inline]] static void scales(const PackedBlock& b, const NothingPrepared&, int unit, int row,
                                            Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
    s.min[0] = widen_halves(b.m[unit] + row);
  }
};

struct Q4_0 : OneScale<PackedQ4_0> {
  static constexpr Traits kTraits{.bits = 4, .offset = 8, .halves = 1, .min = false};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    codes_of(b.codes[unit], row, q);
  }
};

struct Q4_1 : ScaleAndMin<PackedQ4_1> {
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    codes_of(b.codes[unit], row, q);
  }
};

struct Q5_0 : OneScale<PackedQ5_0> {
  static constexpr Traits kTraits{.bits = 5, .offset = 16, .halves = 1, .min = false};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    codes_of(b.unit[unit].codes, b.unit[unit].high, row, q);
  }
};

struct Q5_1 : ScaleAndMin<PackedQ5_1> {
  static constexpr Traits kTraits{.bits = 5, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    codes_of(b.unit[unit].codes, b.unit[unit].high, row, q);
  }
};

struct Q8_0 : OneScale<PackedQ8_0> {
  static constexpr Traits kTraits{.bits = 8, .offset = 128, .halves = 1, .min = false};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = _mm256_load_si256(vector(b.codes[unit][p] + 4 * row)); });
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
