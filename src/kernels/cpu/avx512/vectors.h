// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: loads of partial vectors, and unrolling. Internal linkage, since every file of
// the folder exports its install function only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/unroll.h"

namespace nanomind::avx512 {
namespace {

[[gnu::always_inline]] inline __m512 widen_halves(const uint16_t* h) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h)));
}

// Sixteen numbers, whatever they are kept as; lanes that are left out are 0.
[[gnu::always_inline]] inline __m512 load_floats(const uint16_t* h) { return widen_halves(h); }
[[gnu::always_inline]] inline __m512 load_floats(const float* x) { return _mm512_loadu_ps(x); }
[[gnu::always_inline]] inline __m512 load_floats(__mmask16 lanes, const uint16_t* h) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, h));
}
[[gnu::always_inline]] inline __m512 load_floats(__mmask16 lanes, const float* x) {
  return _mm512_maskz_loadu_ps(lanes, x);
}

// 2^(e - 128) of 16 bytes e, and 0 where that is below the smallest normal float.
[[gnu::always_inline]] inline __m512 widen_exponents(const uint8_t* e) {
  const __m128i less = _mm_subs_epu8(_mm_load_si128(reinterpret_cast<const __m128i*>(e)), _mm_set1_epi8(1));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(less), 23));
}

// Six bits for each of 16 rows, less 32: nibble `nibble` of `low`, and above it field `field` of two bits of `top`.
[[gnu::always_inline]] inline __m512 widen_six_bits(const uint8_t* low, int nibble, const uint8_t* top, int field) {
  const auto field_of = [](const uint8_t* bytes, int shift, int mask) {
    const __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
    return _mm_and_si128(_mm_srl_epi16(v, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(static_cast<char>(mask)));
  };
  const __m128i scale = _mm_or_si128(field_of(low, 4 * nibble, 15), _mm_slli_epi16(field_of(top, 2 * field, 3), 4));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(scale, _mm_set1_epi8(32))));
}

// Lanes [0, count), count of 0 and less to 16 and more.
[[gnu::always_inline]] inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : count <= 0 ? 0 : (1u << count) - 1);
}

}  // namespace
}  // namespace nanomind::avx512
