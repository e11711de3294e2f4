// SPDX-License-Identifier: Apache-2.0
// What formats.h is, for the integer formats whose codes are entries of a table: codes are the entries, made unsigned.
#pragma once

#include "kernels/cpu/avx2/formats.h"
#include "tensor/block.h"

namespace nanomind::avx2 {
namespace {

struct alignas(16) Table {
  uint8_t entry[16];
};
constexpr Table unsigned_table(const int8_t (&values)[16], int offset) {
  Table table{};
  for (int i = 0; i < 16; ++i) table.entry[i] = static_cast<uint8_t>(values[i] + offset);
  return table;
}

template <const Table& kTable>
[[gnu::always_inline]] inline void look_up(const uint8_t (&vectors)[4][64], int row, Codes& q) {
  const __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kTable.entry)));
  codes_of(vectors, row, q);
  each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = _mm256_shuffle_epi8(table, q[p]); });
}

// Fields of 8 bytes: `bits` bits from `shift` on.
[[gnu::always_inline]] inline __m128i fields(const uint8_t* bytes, int shift, int bits) {
  const __m128i v = _mm_srl_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)), _mm_cvtsi32_si128(shift));
  return _mm_and_si128(v, _mm_set1_epi8(static_cast<char>((1 << bits) - 1)));
}

struct Iq4Codes {
  static constexpr Traits kTraits{.bits = 8, .offset = 128, .halves = 1, .min = false};
  static constexpr Table kTable = unsigned_table(kIq4Values, kTraits.offset);
};

struct IQ4_NL : OneScale<PackedIQ4_NL>, Iq4Codes {
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    look_up<kTable>(b.codes[unit], row, q);
  }
};

struct IQ4_XS : Iq4Codes {
  using Block = PackedIQ4_XS;
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    const __m128i low = fields(b.scale_low[unit / 2] + row, 4 * (unit % 2), 4);
    const __m128i top = fields(b.scale_top[unit / 4] + row, 2 * (unit % 4), 2);
    const __m128i scale = _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(top, 4)), _mm_set1_epi8(32));
    s.scale[0] = _mm256_mul_ps(widen_halves(b.d + row), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scale)));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    look_up<kTable>(b.codes[unit], row, q);
  }
};

struct MXFP4 {
  using Block = PackedMXFP4;
  static constexpr Traits kTraits{.bits = 5, .offset = 16, .halves = 1, .min = false};
  static constexpr Table kTable = unsigned_table(kMxfp4Values, kTraits.offset);
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  // 2^(e - 128), and 0 where that is below the smallest normal float.
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    const __m128i e = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b.e[unit] + row));
    const __m128i less = _mm_subs_epu8(e, _mm_set1_epi8(1));
    s.scale[0] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(less), 23));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes& q) {
    look_up<kTable>(b.codes[unit], row, q);
  }
};

}  // namespace
}  // namespace nanomind::avx2
