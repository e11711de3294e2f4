// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats of 256 columns.
#pragma once

#include "kernels/cpu/amx/formats.h"

namespace nanomind::amx {
namespace {

// Scales and mins of 6 bits for each unit.
template <typename PackedBlock>
struct SixBitScales {
  using Block = PackedBlock;
  struct Prepared {
    alignas(64) uint8_t scale[8][16];
    alignas(64) uint8_t min[8][16];
    __m512 d, minus_dmin;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m512i scale = _mm512_load_si512(b.scale_low), min = _mm512_load_si512(b.min_low);
    const __m512i top = _mm512_load_si512(b.top);
    const auto store = [&] [[gnu::always_inline]] (uint8_t* to, __m512i low, __m512i high) {
      const __m512i low4 = _mm512_and_si512(low, _mm512_set1_epi8(15));
      _mm512_store_si512(to, merge(high, _mm512_set1_epi8(0x30), low4));
    };
    store(p.scale[0], scale, shift16<4>(top));
    store(p.scale[4], shift16<-4>(scale), shift16<2>(top));
    store(p.min[0], min, top);
    store(p.min[4], shift16<-4>(min), shift16<-2>(top));
    p.d = cut_scale(b.d);
    p.minus_dmin = _mm512_mul_ps(widen_halves(b.dmin), _mm512_set1_ps(-kCutting));
  }
  [[gnu::always_inline]] static __m512 widen(const uint8_t* bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
  }

 protected:
  template <int kBits>
  [[gnu::always_inline]] static Line unit_line(const Prepared& p, int unit) {
    return line<kBits>(_mm512_mul_ps(p.d, widen(p.scale[unit])), _mm512_mul_ps(p.minus_dmin, widen(p.min[unit])));
  }
};

struct Q4_K : SixBitScales<PackedQ4_K> {
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const Line lines[1] = {unit_line<4>(p, unit)};
    unpack_nibbles<4>(b.codes[unit], nullptr, lines, tile);
  }
};

struct Q5_K : SixBitScales<PackedQ5_K> {
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const Line lines[1] = {unit_line<5>(p, unit)};
    unpack_nibbles<5>(b.unit[unit].codes, b.unit[unit].high, lines, tile);
  }
};

struct Q6_K {
  using Block = PackedQ6_K;
  struct Prepared {
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) { p.d = cut_scale(b.d); }
  [[gnu::always_inline]] static __m512 widen(const int8_t* bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const Line lines[2] = {line<6, 32>(_mm512_mul_ps(p.d, widen(b.scales[2 * unit]))),
                           line<6, 32>(_mm512_mul_ps(p.d, widen(b.scales[2 * unit + 1])))};
    unpack_nibbles<6>(b.unit[unit].codes, b.unit[unit].high[0], lines, tile);
  }
};

}  // namespace
}  // namespace nanomind::amx
