// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats whose codes are entries of a table: here a table of bf16 numbers.
#pragma once

#include "kernels/cpu/amx/formats.h"
#include "tensor/block.h"

namespace nanomind::amx {
namespace {

// Two copies, since VPERMW reads five bits of an index: the uppermost may be anything. All entries are bf16 numbers.
struct alignas(64) Table {
  uint16_t entry[32];
};
constexpr Table bf16_table(const int8_t (&values)[16]) {
  Table table{};
  for (int i = 0; i < 32; ++i) {
    table.entry[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(values[i % 16])) >> 16);
  }
  return table;
}

// One unit of nibbles.
template <const Table& kTable>
[[gnu::always_inline]] inline void unpack_entries(const uint8_t (&codes)[4][64], __m512 scale, std::byte* tile) {
  const __m512i table = _mm512_load_si512(kTable.entry), upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  each<4>([&] [[gnu::always_inline]] (auto g) {
    const __m512i vector = _mm512_load_si512(codes[g]);
    each<4>([&] [[gnu::always_inline]] (auto row) {
      // Columns 2, 3, 6, 7 are in upper bytes; 4..7 in high nibbles.
      const __m512i x = _mm512_permutexvar_epi16(shift16<-(row / 2 * 4 + row % 2 * 8)>(vector), table);
      const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)), scale);
      const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)), scale);
      store_cut(tile + (4 * g + row) * kTileRowBytes, even, odd);
    });
  });
}

constexpr Table kIq4Table = bf16_table(kIq4Values), kMxfp4Table = bf16_table(kMxfp4Values);

struct IQ4_NL {
  using Block = PackedIQ4_NL;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    unpack_entries<kIq4Table>(b.codes[unit], cut_scale(b.d[unit]), tile);
  }
};

struct IQ4_XS {
  using Block = PackedIQ4_XS;
  struct Prepared {
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) { p.d = cut_scale(b.d); }
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared& p, int unit, std::byte* tile) {
    const __m512 scale = avx512::widen_six_bits(b.scale_low[unit / 2], unit % 2, b.scale_top[unit / 4], unit % 4);
    unpack_entries<kIq4Table>(b.codes[unit], _mm512_mul_ps(p.d, scale), tile);
  }
};

// All weights are bf16 numbers, so nothing is cut.
struct MXFP4 {
  using Block = PackedMXFP4;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void unpack(const Block& b, const Prepared&, int unit, std::byte* tile) {
    unpack_entries<kMxfp4Table>(b.codes[unit], avx512::widen_exponents(b.e[unit]), tile);
  }
};

}  // namespace
}  // namespace nanomind::amx
