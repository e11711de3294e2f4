// SPDX-License-Identifier: Apache-2.0
// Loops that are unrolled while compiling. Internal linkage, since code of ISA folders includes it.
#pragma once

namespace nanomind {
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

}  // namespace
}  // namespace nanomind
