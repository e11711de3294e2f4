// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats whose codes are entries of a table: codes are the entries, made unsigned.
#pragma once

#include "kernels/cpu/avx512/formats.h"
#include "tensor/block.h"

namespace nanomind::avx512 {
namespace {

struct alignas(16) Table {
  uint8_t entry[16];
};
constexpr Table unsigned_table(const int8_t (&values)[16], int offset) {
  Table table{};
  for (int i = 0; i < 16; ++i) table.entry[i] = static_cast<uint8_t>(values[i] + offset);
  return table;
}

// The codes of a unit. VPERMB reads six bits of an index: with four copies of a table the upper two may be anything.
template <const Table& kTable>
[[gnu::always_inline]] inline void look_up(const uint8_t (&vectors)[4][64], Codes& q) {
  const __m512i table = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kTable.entry)));
  each<4>([&] [[gnu::always_inline]] (auto g) {
    const __m512i v = _mm512_load_si512(vectors[g]);
    q[2 * g] = _mm512_permutexvar_epi8(v, table);
    q[2 * g + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), table);
  });
}

struct Iq4Codes {
  static constexpr Traits kTraits{.bits = 8, .offset = 128, .halves = 1, .min = false};
  static constexpr Table kTable = unsigned_table(kIq4Values, kTraits.offset);
};

struct IQ4_NL : OneScale<PackedIQ4_NL>, Iq4Codes {
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { look_up<kTable>(b.codes[unit], q); }
};

struct IQ4_XS : Iq4Codes {
  using Block = PackedIQ4_XS;
  struct Prepared {
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) { p.d = widen_halves(b.d); }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, Scales& s) {
    const __m512 scale = widen_six_bits(b.scale_low[unit / 2], unit % 2, b.scale_top[unit / 4], unit % 4);
    s.scale[0] = _mm512_mul_ps(p.d, scale);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { look_up<kTable>(b.codes[unit], q); }
};

struct MXFP4 {
  using Block = PackedMXFP4;
  static constexpr Traits kTraits{.bits = 5, .offset = 16, .halves = 1, .min = false};
  static constexpr Table kTable = unsigned_table(kMxfp4Values, kTraits.offset);
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_exponents(b.e[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) { look_up<kTable>(b.codes[unit], q); }
};

}  // namespace
}  // namespace nanomind::avx512
