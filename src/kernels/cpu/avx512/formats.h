// SPDX-License-Identifier: Apache-2.0
// The weight formats as the products of this folder see them: codes and scales of a unit of 16 rows x 32 columns, or
// columns of floats. Integer formats of 256 columns: formats_k.h; those with tables: formats_table.h.
#pragma once

#include "kernels/cpu/avx512/vectors.h"
#include "tensor/packed_layout.h"

namespace nanomind::avx512 {
namespace {

using Codes = __m512i[8];  // vector p meets dword p of an activation unit's planes

// w = scale[half] * (code - offset) + min[half], with one of each for a unit or one for each half of its columns.
struct Traits {
  int bits;  // of a code
  int offset;
  int halves;
  bool min;
};

// For 16 rows; only what the format has is set.
struct Scales {
  __m512 scale[2];
  __m512 min[2];
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

// The codes of a unit of nibbles, and those with a plane of fifth bits.
[[gnu::always_inline]] inline void codes_of(const uint8_t (&vectors)[4][64], Codes& q) {
  each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(vectors[g], q[2 * g], q[2 * g + 1]); });
}
[[gnu::always_inline]] inline void codes_of(const uint8_t (&vectors)[4][64], const uint8_t (&high)[64], Codes& q) {
  const __m512i plane = _mm512_load_si512(high);
  const __m512i bit = _mm512_set1_epi8(16);
  each<4>([&] [[gnu::always_inline]] (auto g) {
    nibbles(vectors[g], q[2 * g], q[2 * g + 1]);
    q[2 * g] = merge(shift<4 - 2 * g>(plane), bit, q[2 * g]);
    q[2 * g + 1] = merge(shift<3 - 2 * g>(plane), bit, q[2 * g + 1]);
  });
}

// What a code of 0 stands for in half h of a unit: the format's min, or what its offset takes away.
template <typename Format>
[[gnu::always_inline]] inline __m512 value_of_zero(const Scales& s, int h) {
  if constexpr (Format::kTraits.min) return s.min[h];
  return _mm512_mul_ps(s.scale[h], _mm512_set1_ps(-Format::kTraits.offset));
}

struct NothingPrepared {};

// A half float d for each unit, and m as its min.
template <typename PackedBlock>
struct OneScale {
  using Block = PackedBlock;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
};
template <typename PackedBlock>
struct ScaleAndMin : OneScale<PackedBlock> {
  [[gnu::always_inline]] static void scales(const PackedBlock& b, const NothingPrepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
    s.min[0] = widen_halves(b.m[unit]);
  }
};

struct Q4_0 : OneScale<PackedQ4_0> {
  static constexpr Traits kTraits{.bits = 4, .offset = 8, .halves = 1, .min = false};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { codes_of(b.codes[unit], q); }
};

struct Q4_1 : ScaleAndMin<PackedQ4_1> {
  static constexpr Traits kTraits{.bits = 4, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { codes_of(b.codes[unit], q); }
};

struct Q5_0 : OneScale<PackedQ5_0> {
  static constexpr Traits kTraits{.bits = 5, .offset = 16, .halves = 1, .min = false};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    codes_of(b.unit[unit].codes, b.unit[unit].high, q);
  }
};

struct Q5_1 : ScaleAndMin<PackedQ5_1> {
  static constexpr Traits kTraits{.bits = 5, .offset = 0, .halves = 1, .min = true};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    codes_of(b.unit[unit].codes, b.unit[unit].high, q);
  }
};

struct Q8_0 : OneScale<PackedQ8_0> {
  static constexpr Traits kTraits{.bits = 8, .offset = 128, .halves = 1, .min = false};
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = _mm512_load_si512(b.codes[unit][p]); });
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
