// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: unrolling, and loads of partial vectors. Internal linkage, since every file of
// the folder exports its install function only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace nanomind::avx512 {
namespace {

// Calls f with compile-time indices 0..N-1, so that arrays of vectors stay in registers.
template <int I>
struct Index {
  // NOLINTNEXTLINE(google-explicit-constructor): it stands for the number
  constexpr operator int() const { return I; }
};
template <int N, int I = 0, typename F>
[[gnu::always_inline]] inline void each(const F& f) {
  if constexpr (I < N) {
    f(Index<I>());
    each<N, I + 1>(f);
  }
}

[[gnu::always_inline]] inline __m512 widen_halves(const uint16_t* h) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(h)));
}

// Lanes [0, count), count of 0 and less to 16 and more.
[[gnu::always_inline]] inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : count <= 0 ? 0 : (1u << count) - 1);
}

}  // namespace
}  // namespace nanomind::avx512
