// SPDX-License-Identifier: Apache-2.0
// Packed weights to tiles of bf16: row j of a tile holds, for each of 16 rows of the matrix, columns 2j and 2j + 1 of a
// unit next to each other. Each format has `Block`, `Prepared`, `prepare` (once per block) and `unpack` (one unit).
//
// Codes of 2 to 6 bits are made numbers in place: set an exponent above a code at the top of a bf16 mantissa, and the
// bits say 2^bits + code. The packed order has the codes of a pair of columns at one position of the two halves of a
// dword, so a shift and a merge turn 32 codes into numbers. Each half is then the upper half of a float, and one FMA
// applies scale and offset. The float of the odd column needs no cleaning: the even column's bits in its lower half are
// worth a constant, give or take 1/2000 of a code, which goes into the offset.
//
// Results are cut to bf16. Cutting takes half a unit of the last place on average, which is given back beforehand by a
// slightly larger scale: no instruction, and an error 6 % above that of rounding.
#pragma once

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/avx512/vectors.h"
#include "tensor/packed_layout.h"

namespace nanomind::amx {
namespace {

using avx512::widen_halves;

// 1 + 2^-8 ln 2: half a last place of bf16 numbers whose logarithms are evenly spread.
constexpr float kCutting = 1.0027076f;

template <int kLeft>
[[gnu::always_inline]] inline __m512i shift16(__m512i v) {
  if constexpr (kLeft > 0) return _mm512_slli_epi16(v, kLeft);
  if constexpr (kLeft < 0) return _mm512_srli_epi16(v, -kLeft);
  return v;
}

template <int kLeft>
[[gnu::always_inline]] inline __m512i shift32(__m512i v) {
  if constexpr (kLeft > 0) return _mm512_slli_epi32(v, kLeft);
  if constexpr (kLeft < 0) return _mm512_srli_epi32(v, -kLeft);
  return v;
}

// (a & mask) | c
[[gnu::always_inline]] inline __m512i merge(__m512i a, __m512i mask, __m512i c) {
  return _mm512_ternarylogic_epi32(a, mask, c, 0xEA);
}

// The upper halves of the floats of two neighbouring columns, as a tile's row.
[[gnu::always_inline]] inline void store_cut(std::byte* row, __m512 even, __m512 odd) {
  const __m512i upper = _mm512_set4_epi32(0x0F0E, 0x0B0A, 0x0706, 0x0302);
  constexpr __mmask64 kLowerHalves = 0x3333333333333333;
  _mm512_store_si512(
      row, _mm512_mask_shuffle_epi8(_mm512_castps_si512(odd), kLowerHalves, _mm512_castps_si512(even), upper));
}

// A weight is scale * x + even (or odd), x being the number that its code was made.
struct Line {
  __m512 scale, even, odd;
};

template <int kBits>
struct Number {
  static constexpr int kPosition = 7 - kBits;  // of a code in a bf16 mantissa
  static constexpr int kExponent = (127 + kBits) << 7;
  static constexpr float kBase = 1 << kBits;
  // What the lower half of a float adds when it holds the middle one of these numbers.
  static constexpr float kTail =
      (kExponent + 0.5f * ((1 << kBits) - 1) * (1 << kPosition)) / (65536.0f * (1 << kPosition));
};

// The line of w = scale * (code - kOffset).
template <int kBits, int kOffset>
[[gnu::always_inline]] inline Line line(__m512 scale) {
  constexpr float kStart = Number<kBits>::kBase + kOffset;
  return {scale, _mm512_mul_ps(scale, _mm512_set1_ps(-kStart)),
          _mm512_mul_ps(scale, _mm512_set1_ps(-kStart - Number<kBits>::kTail))};
}

// The line of w = scale * code + min.
template <int kBits>
[[gnu::always_inline]] inline Line line(__m512 scale, __m512 min) {
  constexpr float kStart = Number<kBits>::kBase;
  return {scale, _mm512_fmadd_ps(scale, _mm512_set1_ps(-kStart), min),
          _mm512_fmadd_ps(scale, _mm512_set1_ps(-kStart - Number<kBits>::kTail), min)};
}

// Pairs of numbers of tile row 4 * kVector + kRow, from the vector's nibbles and the plane of their upper bits.
template <int kBits, int kVector, int kRow>
[[gnu::always_inline]] inline __m512i numbers(__m512i codes, __m512i plane) {
  constexpr int kByte = kRow % 2 * 8, kHigh = kRow / 2;  // columns 2, 3, 6, 7 are in upper bytes; 4..7 in high nibbles
  constexpr int kPosition = Number<kBits>::kPosition;
  __m512i number = _mm512_set1_epi16(Number<kBits>::kExponent);
  if constexpr (kBits > 4) {
    constexpr int kWidth = kBits - 4;
    constexpr int kField = (2 * kVector + kHigh) * kWidth % 8 + kByte;
    const __m512i mask = _mm512_set1_epi16(((1 << kWidth) - 1) << (kPosition + 4));
    number = merge(shift16<kPosition + 4 - kField>(plane), mask, number);
  }
  return merge(shift16<kPosition - 4 * kHigh - kByte>(codes), _mm512_set1_epi16(15 << kPosition), number);
}

// The weights of a tile's row, whose numbers are the pairs x.
[[gnu::always_inline]] inline void store_weights(std::byte* row, __m512i x, const Line& line) {
  const __m512 even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)), line.scale, line.even);
  const __m512 odd = _mm512_fmadd_ps(_mm512_castsi512_ps(x), line.scale, line.odd);
  store_cut(row, even, odd);
}

// One unit of nibbles, with its planes of upper bits (none for 4 bits) and one line per 32 / kLines columns.
template <int kBits, int kLines>
[[gnu::always_inline]] inline void unpack_nibbles(const uint8_t (&codes)[4][64], const uint8_t* planes,
                                                  const Line (&lines)[kLines], std::byte* tile) {
  each<4>([&] [[gnu::always_inline]] (auto g) {
    const __m512i vector = _mm512_load_si512(codes[g]);
    __m512i plane{};
    if constexpr (kBits > 4) plane = _mm512_load_si512(planes + g * (kBits - 4) / 4 * 64);
    each<4>([&] [[gnu::always_inline]] (auto row) {
      store_weights(tile + (4 * g + row) * kTileRowBytes, numbers<kBits, g, row>(vector, plane), lines[g * kLines / 4]);
    });
  });
}

[[gnu::always_inline]] inline __m512 cut_scale(const uint16_t* halves) {
  return _mm512_mul_ps(widen_halves(halves), _mm512_set1_ps(kCutting));
}

struct NothingPrepared {};

struct Q4_0 {
  using Block = PackedQ4_0;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    const Line lines[1] = {line<4, 8>(cut_scale(b.d[unit]))};
    unpack_nibbles<4>(b.codes[unit], nullptr, lines, tile);
  }
};

struct Q4_1 {
  using Block = PackedQ4_1;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    const Line lines[1] = {line<4>(cut_scale(b.d[unit]), cut_scale(b.m[unit]))};
    unpack_nibbles<4>(b.codes[unit], nullptr, lines, tile);
  }
};

struct Q5_0 {
  using Block = PackedQ5_0;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    const Line lines[1] = {line<5, 16>(cut_scale(b.d[unit]))};
    unpack_nibbles<5>(b.unit[unit].codes, b.unit[unit].high, lines, tile);
  }
};

struct Q5_1 {
  using Block = PackedQ5_1;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    const Line lines[1] = {line<5>(cut_scale(b.d[unit]), cut_scale(b.m[unit]))};
    unpack_nibbles<5>(b.unit[unit].codes, b.unit[unit].high, lines, tile);
  }
};

// Eight bits fill more than a bf16 mantissa, so each code is made a float 256 + code.
struct Q8_0 {
  using Block = PackedQ8_0;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    const __m512 scale = cut_scale(b.d[unit]);
    const __m512 start = _mm512_mul_ps(scale, _mm512_set1_ps(-256 - 128));
    const auto weights = [&] [[gnu::always_inline]] (__m512i shifted) {
      const __m512i number = merge(shifted, _mm512_set1_epi32(0xFF << 15), _mm512_set1_epi32((127 + 8) << 23));
      return _mm512_fmadd_ps(_mm512_castsi512_ps(number), scale, start);
    };
    each<8>([&] [[gnu::always_inline]] (auto p) {
      const __m512i v = _mm512_load_si512(b.codes[unit][p]);  // bytes are columns 0, 2, 1, 3
      store_cut(tile + 2 * p * kTileRowBytes, weights(shift32<15>(v)), weights(shift32<-1>(v)));
      store_cut(tile + (2 * p + 1) * kTileRowBytes, weights(shift32<7>(v)), weights(shift32<-9>(v)));
    });
  }
};

// Two columns of 16 bf16 numbers each, the even one in the lower half, as a tile's row.
[[gnu::always_inline]] inline void store_interleaved(std::byte* row, __m512i columns) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  _mm512_store_si512(row, _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), columns));
}

[[gnu::always_inline]] inline __m512i round_columns(__m512 even, __m512 odd) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
}

struct F32 {
  using Block = PackedFloat;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int, std::byte* tile) {
    each<16>([&] [[gnu::always_inline]] (auto j) {
      store_interleaved(tile + j * kTileRowBytes,
                        round_columns(_mm512_load_ps(b.w[2 * j]), _mm512_load_ps(b.w[2 * j + 1])));
    });
  }
};

struct F16 {
  using Block = PackedHalf;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int, std::byte* tile) {
    each<16>([&] [[gnu::always_inline]] (auto j) {
      store_interleaved(tile + j * kTileRowBytes,
                        round_columns(widen_halves(b.w[2 * j]), widen_halves(b.w[2 * j + 1])));
    });
  }
};

struct Bf16 {
  using Block = PackedHalf;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int, std::byte* tile) {
    each<16>([&] [[gnu::always_inline]] (auto j) {
      store_interleaved(tile + j * kTileRowBytes, _mm512_load_si512(b.w[2 * j]));
    });
  }
};

}  // namespace
}  // namespace nanomind::amx
