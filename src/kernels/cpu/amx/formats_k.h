// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats of 256 columns.
#pragma once

#include "kernels/cpu/amx/formats.h"

namespace nanomind::amx {
namespace {

// One unit of bit pairs, and for 3 bits their third ones, with one line for each half of the columns.
template <int kBits>
[[gnu::always_inline]] inline void unpack_bit_pairs(const uint8_t (&planes)[2][64], const uint8_t* high,
                                                    const Line (&lines)[2], std::byte* tile) {
  constexpr int kPosition = Number<kBits>::kPosition;
  const __m512i pairs[2] = {_mm512_load_si512(planes[0]), _mm512_load_si512(planes[1])};
  __m512i third{};
  if constexpr (kBits > 2) third = _mm512_load_si512(high);
  each<16>([&] [[gnu::always_inline]] (auto row) {
    constexpr int kVector = row / 2, kByte = row % 2 * 8;  // columns 2, 3, 6, 7 of a run are in upper bytes
    __m512i x = merge(shift16<kPosition - 2 * (kVector % 4) - kByte>(pairs[kVector / 4]),
                      _mm512_set1_epi16(3 << kPosition), _mm512_set1_epi16(Number<kBits>::kExponent));
    if constexpr (kBits > 2) {
      x = merge(shift16<kPosition + 2 - kVector - kByte>(third), _mm512_set1_epi16(4 << kPosition), x);
    }
    store_weights(tile + row * kTileRowBytes, x, lines[row / 8]);
  });
}

[[gnu::always_inline]] inline __m512 widen_signed(const int8_t* bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
}

struct Q2_K {
  using Block = PackedQ2_K;
  struct Prepared {
    __m512 d, minus_dmin;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    p.d = cut_scale(b.d);
    p.minus_dmin = _mm512_mul_ps(widen_halves(b.dmin), _mm512_set1_ps(-kCutting));
  }
  [[gnu::always_inline]] static Line half_line(const Prepared& p, const uint8_t* scales) {
    const __m512i both = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(scales)));
    const __m512 scale = _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15)));
    return line<2>(_mm512_mul_ps(p.d, scale),
                   _mm512_mul_ps(p.minus_dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4))));
  }
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const Line lines[2] = {half_line(p, b.scales[2 * unit]), half_line(p, b.scales[2 * unit + 1])};
    unpack_bit_pairs<2>(b.codes[unit], nullptr, lines, tile);
  }
};

struct Q3_K {
  using Block = PackedQ3_K;
  struct Prepared {
    alignas(64) int8_t scale[16][16];
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m512i first = _mm512_load_si512(b.scales[0]), second = _mm512_load_si512(b.scales[4]);
    const __m512i top = _mm512_load_si512(b.scales[8]);
    const auto store = [&] [[gnu::always_inline]] (int8_t* to, __m512i low, __m512i high) {
      const __m512i low4 = _mm512_and_si512(low, _mm512_set1_epi8(15));
      _mm512_store_si512(to, _mm512_sub_epi8(merge(high, _mm512_set1_epi8(0x30), low4), _mm512_set1_epi8(32)));
    };
    store(p.scale[0], first, shift16<4>(top));
    store(p.scale[4], second, shift16<2>(top));
    store(p.scale[8], shift16<-4>(first), top);
    store(p.scale[12], shift16<-4>(second), shift16<-2>(top));
    p.d = cut_scale(b.d);
  }
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const Line lines[2] = {line<3, 4>(_mm512_mul_ps(p.d, widen_signed(p.scale[2 * unit]))),
                           line<3, 4>(_mm512_mul_ps(p.d, widen_signed(p.scale[2 * unit + 1])))};
    unpack_bit_pairs<3>(b.unit[unit].low, b.unit[unit].high, lines, tile);
  }
};

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
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const Line lines[2] = {line<6, 32>(_mm512_mul_ps(p.d, widen_signed(b.scales[2 * unit]))),
                           line<6, 32>(_mm512_mul_ps(p.d, widen_signed(b.scales[2 * unit + 1])))};
    unpack_nibbles<6>(b.unit[unit].codes, b.unit[unit].high[0], lines, tile);
  }
};

}  // namespace
}  // namespace nanomind::amx
