// SPDX-License-Identifier: Apache-2.0
// Integer products that are added to sums of 32 bits. As assembly, because GCC 12 otherwise copies and spills sums that
// fill the register file.
#pragma once

#include <immintrin.h>

namespace nanomind::avx512 {
namespace {

// sum += two products of 16-bit numbers per lane.
[[gnu::always_inline]] inline void add_pairs(__m512i& sum, __m512i x, __m512i y) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
}

// sum += four products of bytes per lane, x unsigned, y signed.
[[gnu::always_inline]] inline void add_quads(__m512i& sum, __m512i x, __m512i y) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
}

}  // namespace
}  // namespace nanomind::avx512
