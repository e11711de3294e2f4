// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: loads of partial vectors, and unrolling. Internal linkage, since every file of
// the folder exports its install function only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/unroll.h"

namespace nanomind::avx2 {
namespace {

[[gnu::always_inline]] inline __m256 widen_halves(const uint16_t* h) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h)));
}

// Eight numbers, whatever they are kept as.
[[gnu::always_inline]] inline __m256 load_floats(const uint16_t* h) { return widen_halves(h); }
[[gnu::always_inline]] inline __m256 load_floats(const float* x) { return _mm256_loadu_ps(x); }

// Lanes [0, count) as a mask for maskload and maskstore, count of 0 and less to 8 and more.
[[gnu::always_inline]] inline __m256i first_lanes(int64_t count) {
  const int lanes = count >= 8 ? 8 : count <= 0 ? 0 : static_cast<int>(count);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

[[gnu::always_inline]] inline float sum_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
[[gnu::always_inline]] inline float max_lanes(__m256 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

}  // namespace
}  // namespace nanomind::avx2
