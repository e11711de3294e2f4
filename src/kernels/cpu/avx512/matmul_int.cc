// SPDX-License-Identifier: Apache-2.0
// Integer matmul with VNNI: a vector of codes (16 rows x 4 columns) meets four broadcast bytes of an activation, once
// for its high and once for its low plane. Each unit of weights is unpacked once for all activation rows.
#include "kernels/cpu/avx512/vectors.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

using Codes = __m512i[8];  // vector p meets dword p of an activation unit's planes

// w = scale[half] * (code - offset) + min, with one scale for a unit or one for each half of its columns.
struct Traits {
  int offset;
  int halves;
  bool min;
};

// For 16 rows; only what the format has is set.
struct Scales {
  __m512 scale[2];
  __m512 min;
};

[[gnu::always_inline]] inline __m512 widen_bytes(const uint8_t* b) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(b))));
}
[[gnu::always_inline]] inline __m512 widen_signed_bytes(const int8_t* b) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(b))));
}

template <int kLeft>
[[gnu::always_inline]] inline __m512i shift(__m512i v) {
  if constexpr (kLeft > 0) return _mm512_slli_epi16(v, kLeft);
  if constexpr (kLeft < 0) return _mm512_srli_epi16(v, -kLeft);
  return v;
}

// (a & mask) | c
[[gnu::always_inline]] inline __m512i merge(__m512i a, __m512i mask, __m512i c) {
  return _mm512_ternarylogic_epi32(a, mask, c, 0xEA);
}

[[gnu::always_inline]] inline void nibbles(const uint8_t* vector, __m512i& low, __m512i& high) {
  const __m512i v = _mm512_load_si512(vector);
  const __m512i mask = _mm512_set1_epi8(15);
  low = _mm512_and_si512(v, mask);
  high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
}

struct NothingPrepared {};

struct Q4_0 {
  using Block = PackedQ4_0;
  static constexpr Traits kTraits{.offset = 8, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g], q[2 * g], q[2 * g + 1]); });
  }
};

struct Q4_1 {
  using Block = PackedQ4_1;
  static constexpr Traits kTraits{.offset = 0, .halves = 1, .min = true};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
    s.min = widen_halves(b.m[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g], q[2 * g], q[2 * g + 1]); });
  }
};

struct Q5_0 {
  using Block = PackedQ5_0;
  static constexpr Traits kTraits{.offset = 16, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    const __m512i plane = _mm512_load_si512(b.unit[unit].high);
    const __m512i bit = _mm512_set1_epi8(16);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      nibbles(b.unit[unit].codes[g], q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 2 * g>(plane), bit, q[2 * g]);
      q[2 * g + 1] = merge(shift<3 - 2 * g>(plane), bit, q[2 * g + 1]);
    });
  }
};

struct Q8_0 {
  using Block = PackedQ8_0;
  static constexpr Traits kTraits{.offset = 128, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit]);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<8>([&] [[gnu::always_inline]] (auto p) { q[p] = _mm512_load_si512(b.codes[unit][p]); });
  }
};

struct Q4_K {
  using Block = PackedQ4_K;
  static constexpr Traits kTraits{.offset = 0, .halves = 1, .min = true};
  struct Prepared {
    alignas(64) uint8_t scale[8][16];
    alignas(64) uint8_t min[8][16];
    __m512 d, minus_dmin;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m512i scale = _mm512_load_si512(b.scale_low), min = _mm512_load_si512(b.min_low);
    const __m512i top = _mm512_load_si512(b.top);
    const __m512i low4 = _mm512_set1_epi8(15), top2 = _mm512_set1_epi8(0x30);
    const auto store = [&] [[gnu::always_inline]] (uint8_t* to, __m512i low, __m512i high) {
      _mm512_store_si512(to, merge(high, top2, _mm512_and_si512(low, low4)));
    };
    store(p.scale[0], scale, shift<4>(top));
    store(p.scale[4], shift<-4>(scale), shift<2>(top));
    store(p.min[0], min, top);
    store(p.min[4], shift<-4>(min), shift<-2>(top));
    p.d = widen_halves(b.d);
    p.minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), widen_halves(b.dmin));
  }
  [[gnu::always_inline]] static void scales(const Block&, const Prepared& p, int unit, Scales& s) {
    s.scale[0] = _mm512_mul_ps(p.d, widen_bytes(p.scale[unit]));
    s.min = _mm512_mul_ps(p.minus_dmin, widen_bytes(p.min[unit]));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g], q[2 * g], q[2 * g + 1]); });
  }
};

struct Q6_K {
  using Block = PackedQ6_K;
  static constexpr Traits kTraits{.offset = 32, .halves = 2, .min = false};
  struct Prepared {
    __m512 d;
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) { p.d = widen_halves(b.d); }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, Scales& s) {
    s.scale[0] = _mm512_mul_ps(p.d, widen_signed_bytes(b.scales[2 * unit]));
    s.scale[1] = _mm512_mul_ps(p.d, widen_signed_bytes(b.scales[2 * unit + 1]));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, Codes& q) {
    const __m512i bits = _mm512_set1_epi8(0x30);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      const __m512i plane = _mm512_load_si512(b.unit[unit].high[g / 2]);
      nibbles(b.unit[unit].codes[g], q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 4 * (g % 2)>(plane), bits, q[2 * g]);
      q[2 * g + 1] = merge(shift<2 - 4 * (g % 2)>(plane), bits, q[2 * g + 1]);
    });
  }
};

[[gnu::always_inline]] inline __m512i broadcast4(const int8_t* bytes) {
  int32_t dword;
  __builtin_memcpy(&dword, bytes, sizeof dword);
  return _mm512_set1_epi32(dword);
}

// start + sum over vectors kFirst..kFirst + kCount - 1 of codes times the activation's codes, as floats of 16 rows.
// With two planes those are 256 * hi + lo, with one they are hi.
template <int kPlanes, int kFirst, int kCount>
[[gnu::always_inline]] inline __m512 dot(const Codes& q, const ActivationUnit& x, __m512i start) {
  __m512i hi = kPlanes == 1 ? start : _mm512_setzero_si512(), lo = start;
  each<kCount>([&] [[gnu::always_inline]] (auto p) {
    hi = _mm512_dpbusd_epi32(hi, q[kFirst + p], broadcast4(x.hi + 4 * (kFirst + p)));
    if constexpr (kPlanes == 2) lo = _mm512_dpbusd_epi32(lo, q[kFirst + p], broadcast4(x.lo + 4 * (kFirst + p)));
  });
  if constexpr (kPlanes == 1) return _mm512_cvtepi32_ps(hi);
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi, 8), lo));
}

// -kOffset * sum in all lanes, without a detour through general registers.
template <int kOffset>
[[gnu::always_inline]] inline __m512i minus_offset(__m512i sum) {
  if constexpr (kOffset == 0) {
    return _mm512_setzero_si512();
  } else {
    static_assert((kOffset & (kOffset - 1)) == 0);
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, __builtin_ctz(kOffset)));
  }
}

// total += w . x over one unit.
template <typename Format, int kPlanes>
[[gnu::always_inline]] inline void add_unit(const Codes& q, const Scales& s, const ActivationUnit& x, __m512& total) {
  constexpr int kOffset = Format::kTraits.offset;
  const __m512i sums[2] = {_mm512_set1_epi32(x.sum[0]), _mm512_set1_epi32(x.sum[1])};
  __m512 value;
  if constexpr (Format::kTraits.halves == 2) {
    const __m512 second = dot<kPlanes, 4, 4>(q, x, minus_offset<kOffset>(sums[1]));
    value = _mm512_fmadd_ps(dot<kPlanes, 0, 4>(q, x, minus_offset<kOffset>(sums[0])), s.scale[0],
                            _mm512_mul_ps(second, s.scale[1]));
  } else {
    value =
        _mm512_mul_ps(dot<kPlanes, 0, 8>(q, x, minus_offset<kOffset>(_mm512_add_epi32(sums[0], sums[1]))), s.scale[0]);
  }
  total = _mm512_fmadd_ps(value, _mm512_set1_ps(x.scale), total);
  if constexpr (Format::kTraits.min) total = _mm512_fmadd_ps(s.min, _mm512_set1_ps(x.scaled_sum), total);
}

// Bytes ahead of the reader that are asked for: what one core needs in flight to be served at the speed of memory. Row
// groups follow each other, so at the end of one this is the beginning of the next.
constexpr int64_t kAhead = 8192;

template <typename Block>
[[gnu::always_inline]] inline void prefetch(const Block& block, int unit) {
  constexpr int kBytes = static_cast<int>(sizeof(Block)) / (Block::kColumns / kUnitColumns);
  const std::byte* at = reinterpret_cast<const std::byte*>(&block) + kAhead + unit * kBytes;
  each<(kBytes + 63) / 64>([&] [[gnu::always_inline]] (auto line) { __builtin_prefetch(at + 64 * line); });
}

// kRows activation rows times one row group; out is where row 0 of the activations has its 16 results.
template <typename Format, int kPlanes, int kRows>
[[gnu::noinline]] void multiply_group(const IntMatmulArgs& a, const std::byte* group, float* out) {
  using Block = typename Format::Block;
  constexpr int kUnits = Block::kColumns / kUnitColumns;
  const auto* blocks = reinterpret_cast<const Block*>(group);
  const ActivationUnit* x = a.x;
  __m512 total[kRows];
  each<kRows>([&] [[gnu::always_inline]] (auto i) { total[i] = _mm512_setzero_ps(); });

  for (int64_t b = 0; b < a.blocks; ++b) {
    typename Format::Prepared prepared;
    Format::prepare(blocks[b], prepared);
#pragma GCC unroll 1
    for (int unit = 0; unit < kUnits; ++unit, ++x) {
      prefetch(blocks[b], unit);
      Codes codes;
      Scales scales;
      Format::codes(blocks[b], unit, codes);
      Format::scales(blocks[b], prepared, unit, scales);
      each<kRows>([&] [[gnu::always_inline]] (auto i) {
        add_unit<Format, kPlanes>(codes, scales, x[i * a.x_stride], total[i]);
      });
    }
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) { _mm512_storeu_ps(out + i * a.out_stride, total[i]); });
}

template <typename Format, int kPlanes, int kRows>
void matmul_rows(const IntMatmulArgs& a) {
  for (int g = 0; g < a.groups; ++g) {
    multiply_group<Format, kPlanes, kRows>(a, a.weights + static_cast<size_t>(g) * a.group_bytes, a.out + 16 * g);
  }
}

template <typename Format, int kPlanes>
void matmul(const IntMatmulArgs& a) {
  static constexpr IntMatmul kByRows[kMaxTileRows] = {matmul_rows<Format, kPlanes, 1>, matmul_rows<Format, kPlanes, 2>,
                                                      matmul_rows<Format, kPlanes, 3>, matmul_rows<Format, kPlanes, 4>,
                                                      matmul_rows<Format, kPlanes, 5>, matmul_rows<Format, kPlanes, 6>,
                                                      matmul_rows<Format, kPlanes, 7>, matmul_rows<Format, kPlanes, 8>};
  kByRows[a.m - 1](a);
}

template <typename Format>
void install(KernelTable& table, IntWeight type) {
  table.matmul[static_cast<int>(type)] = matmul<Format, 2>;
  table.matmul8[static_cast<int>(type)] = matmul<Format, 1>;
}

}  // namespace

void install_int_matmul(KernelTable& table) {
  install<Q4_0>(table, IntWeight::q4_0);
  install<Q4_1>(table, IntWeight::q4_1);
  install<Q5_0>(table, IntWeight::q5_0);
  install<Q8_0>(table, IntWeight::q8_0);
  install<Q4_K>(table, IntWeight::q4_k);
  install<Q6_K>(table, IntWeight::q6_k);
}

}  // namespace nanomind::avx512
