// SPDX-License-Identifier: Apache-2.0
// Integer matmul with byte multiplies of AVX2: 8 rows x 4 columns of codes meet four broadcast bytes of an activation
// plane, pairs of products are summed in 16 bits for as long as they cannot overflow, then widened. 8-bit codes would
// overflow at once, so they are taken as two nibbles.
#include "kernels/cpu/avx2/vectors.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

// w = scale[half] * (code - offset) + min, with one scale for a unit or one for each half of its columns. `bits` is the
// width of an operand, `parts` the number of operands that make up a code, from the lowest.
struct Traits {
  int bits;
  int parts;
  int offset;
  int halves;
  bool min;
};

// For 8 rows; only what the format has is set.
struct Scales {
  __m256 scale[2];
  __m256 min;
};

template <typename Format>
using Codes = __m256i[8 * Format::kTraits.parts];  // vector p % 8 meets dword p % 8 of a plane; p / 8 is the part

const __m256i* vector(const uint8_t* bytes) { return reinterpret_cast<const __m256i*>(bytes); }

[[gnu::always_inline]] inline __m256 widen_bytes(const uint8_t* b) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b))));
}
[[gnu::always_inline]] inline __m256 widen_signed_bytes(const int8_t* b) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b))));
}

template <int kLeft>
[[gnu::always_inline]] inline __m256i shift(__m256i v) {
  if constexpr (kLeft > 0) return _mm256_slli_epi16(v, kLeft);
  if constexpr (kLeft < 0) return _mm256_srli_epi16(v, -kLeft);
  return v;
}

// (a & mask) | c
[[gnu::always_inline]] inline __m256i merge(__m256i a, __m256i mask, __m256i c) {
  return _mm256_or_si256(_mm256_and_si256(a, mask), c);
}

[[gnu::always_inline]] inline void nibbles(const uint8_t* bytes, __m256i& low, __m256i& high) {
  const __m256i v = _mm256_load_si256(vector(bytes));
  const __m256i mask = _mm256_set1_epi8(15);
  low = _mm256_and_si256(v, mask);
  high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
}

struct NothingPrepared {};

// In all formats `row` is 0 or 8, the first of the 8 rows.
struct Q4_0 {
  using Block = PackedQ4_0;
  static constexpr Traits kTraits{.bits = 4, .parts = 1, .offset = 8, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes<Q4_0>& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g] + 4 * row, q[2 * g], q[2 * g + 1]); });
  }
};

struct Q4_1 {
  using Block = PackedQ4_1;
  static constexpr Traits kTraits{.bits = 4, .parts = 1, .offset = 0, .halves = 1, .min = true};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
    s.min = widen_halves(b.m[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes<Q4_1>& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g] + 4 * row, q[2 * g], q[2 * g + 1]); });
  }
};

struct Q5_0 {
  using Block = PackedQ5_0;
  static constexpr Traits kTraits{.bits = 5, .parts = 1, .offset = 16, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes<Q5_0>& q) {
    const __m256i plane = _mm256_load_si256(vector(b.unit[unit].high + 4 * row));
    const __m256i bit = _mm256_set1_epi8(16);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      nibbles(b.unit[unit].codes[g] + 4 * row, q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 2 * g>(plane), bit, q[2 * g]);
      q[2 * g + 1] = merge(shift<3 - 2 * g>(plane), bit, q[2 * g + 1]);
    });
  }
};

struct Q8_0 {
  using Block = PackedQ8_0;
  static constexpr Traits kTraits{.bits = 4, .parts = 2, .offset = 128, .halves = 1, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    s.scale[0] = widen_halves(b.d[unit] + row);
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes<Q8_0>& q) {
    each<8>([&] [[gnu::always_inline]] (auto p) { nibbles(b.codes[unit][p] + 4 * row, q[p], q[8 + p]); });
  }
};

struct Q4_K {
  using Block = PackedQ4_K;
  static constexpr Traits kTraits{.bits = 4, .parts = 1, .offset = 0, .halves = 1, .min = true};
  struct Prepared {
    alignas(32) uint8_t scale[8][16];
    alignas(32) uint8_t min[8][16];
  };
  [[gnu::always_inline]] static void prepare(const Block& b, Prepared& p) {
    const __m256i low4 = _mm256_set1_epi8(15), top2 = _mm256_set1_epi8(0x30);
    const auto store = [&] [[gnu::always_inline]] (uint8_t* to, __m256i low, __m256i high) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), merge(high, top2, _mm256_and_si256(low, low4)));
    };
    each<2>([&] [[gnu::always_inline]] (auto i) {
      const __m256i scale = _mm256_load_si256(vector(b.scale_low + 32 * i));
      const __m256i min = _mm256_load_si256(vector(b.min_low + 32 * i));
      const __m256i top = _mm256_load_si256(vector(b.top + 32 * i));
      store(p.scale[2 * i], scale, shift<4>(top));
      store(p.scale[4 + 2 * i], shift<-4>(scale), shift<2>(top));
      store(p.min[2 * i], min, top);
      store(p.min[4 + 2 * i], shift<-4>(min), shift<-2>(top));
    });
  }
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared& p, int unit, int row, Scales& s) {
    s.scale[0] = _mm256_mul_ps(widen_halves(b.d + row), widen_bytes(p.scale[unit] + row));
    const __m256 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), widen_halves(b.dmin + row));
    s.min = _mm256_mul_ps(minus_dmin, widen_bytes(p.min[unit] + row));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes<Q4_K>& q) {
    each<4>([&] [[gnu::always_inline]] (auto g) { nibbles(b.codes[unit][g] + 4 * row, q[2 * g], q[2 * g + 1]); });
  }
};

struct Q6_K {
  using Block = PackedQ6_K;
  static constexpr Traits kTraits{.bits = 6, .parts = 1, .offset = 32, .halves = 2, .min = false};
  using Prepared = NothingPrepared;
  [[gnu::always_inline]] static void prepare(const Block&, Prepared&) {}
  [[gnu::always_inline]] static void scales(const Block& b, const Prepared&, int unit, int row, Scales& s) {
    const __m256 d = widen_halves(b.d + row);
    s.scale[0] = _mm256_mul_ps(d, widen_signed_bytes(b.scales[2 * unit] + row));
    s.scale[1] = _mm256_mul_ps(d, widen_signed_bytes(b.scales[2 * unit + 1] + row));
  }
  [[gnu::always_inline]] static void codes(const Block& b, int unit, int row, Codes<Q6_K>& q) {
    const __m256i bits = _mm256_set1_epi8(0x30);
    each<4>([&] [[gnu::always_inline]] (auto g) {
      const __m256i plane = _mm256_load_si256(vector(b.unit[unit].high[g / 2] + 4 * row));
      nibbles(b.unit[unit].codes[g] + 4 * row, q[2 * g], q[2 * g + 1]);
      q[2 * g] = merge(shift<4 - 4 * (g % 2)>(plane), bits, q[2 * g]);
      q[2 * g + 1] = merge(shift<2 - 4 * (g % 2)>(plane), bits, q[2 * g + 1]);
    });
  }
};

// Sum over kCount vectors of codes from q on times the bytes of a plane, as int32 of 8 rows.
template <int kBits, int kCount>
[[gnu::always_inline]] inline __m256i dot_plane(const __m256i* q, const int8_t* bytes) {
  // A product pair is at most 2 * 128 * (2^bits - 1) in magnitude, and 16 bits hold 32767.
  constexpr int kMost = 32767 / (256 * ((1 << kBits) - 1)), kRun = kMost < kCount ? kMost / 2 * 2 : kCount;
  static_assert(kCount % kRun == 0);
  __m256i sum = _mm256_setzero_si256();
  each<kCount / kRun>([&] [[gnu::always_inline]] (auto run) {
    __m256i pairs = _mm256_setzero_si256();
    each<kRun>([&] [[gnu::always_inline]] (auto i) {
      int32_t dword;
      __builtin_memcpy(&dword, bytes + 4 * (kRun * run + i), sizeof dword);
      const __m256i products = _mm256_maddubs_epi16(q[kRun * run + i], _mm256_set1_epi32(dword));
      pairs = i == 0 ? products : _mm256_add_epi16(pairs, products);
    });
    const __m256i wide = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    sum = run == 0 ? wide : _mm256_add_epi32(sum, wide);
  });
  return sum;
}

// The same times 256 * hi + lo, for columns from dword kFirst of the unit on, and of all parts of a code.
template <typename Format, int kFirst, int kCount>
[[gnu::always_inline]] inline __m256i dot(const Codes<Format>& q, const ActivationUnit& x, int32_t start) {
  constexpr int kBits = Format::kTraits.bits;
  __m256i hi = dot_plane<kBits, kCount>(q + kFirst, x.hi + 4 * kFirst);
  __m256i lo = dot_plane<kBits, kCount>(q + kFirst, x.lo + 4 * kFirst);
  if constexpr (Format::kTraits.parts == 2) {
    hi = _mm256_add_epi32(hi, _mm256_slli_epi32(dot_plane<kBits, kCount>(q + 8 + kFirst, x.hi + 4 * kFirst), kBits));
    lo = _mm256_add_epi32(lo, _mm256_slli_epi32(dot_plane<kBits, kCount>(q + 8 + kFirst, x.lo + 4 * kFirst), kBits));
  }
  return _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(hi, 8), lo), _mm256_set1_epi32(start));
}

// total += w . x over one unit.
template <typename Format>
[[gnu::always_inline]] inline void add_unit(const Codes<Format>& q, const Scales& s, const ActivationUnit& x,
                                            __m256& total) {
  constexpr Traits kTraits = Format::kTraits;
  __m256 value;
  if constexpr (kTraits.halves == 2) {
    const __m256i first = dot<Format, 0, 4>(q, x, -kTraits.offset * x.sum[0]);
    const __m256i second = dot<Format, 4, 4>(q, x, -kTraits.offset * x.sum[1]);
    value =
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), s.scale[0], _mm256_mul_ps(_mm256_cvtepi32_ps(second), s.scale[1]));
  } else {
    const int32_t sum = x.sum[0] + x.sum[1];
    const __m256i all = dot<Format, 0, 8>(q, x, -kTraits.offset * sum);
    value = _mm256_mul_ps(_mm256_cvtepi32_ps(all), s.scale[0]);
    if constexpr (kTraits.min) value = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(sum)), s.min, value);
  }
  total = _mm256_fmadd_ps(value, _mm256_set1_ps(x.scale), total);
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
template <typename Format, int kRows>
[[gnu::noinline]] void multiply_group(const IntMatmulArgs& a, const std::byte* group, float* out) {
  using Block = typename Format::Block;
  constexpr int kUnits = Block::kColumns / kUnitColumns;
  const auto* blocks = reinterpret_cast<const Block*>(group);
  const ActivationUnit* x = a.x;
  __m256 total[2][kRows];
  each<kRows>([&] [[gnu::always_inline]] (auto i) { total[0][i] = total[1][i] = _mm256_setzero_ps(); });

  for (int64_t b = 0; b < a.blocks; ++b) {
    typename Format::Prepared prepared;
    Format::prepare(blocks[b], prepared);
#pragma GCC unroll 1
    for (int unit = 0; unit < kUnits; ++unit, ++x) {
      prefetch(blocks[b], unit);
      each<2>([&] [[gnu::always_inline]] (auto half) {
        // Activations are read again for each half: kept for the second one, they would be spilled.
        __asm__ volatile("" ::: "memory");
        Codes<Format> codes;
        Scales scales;
        Format::codes(blocks[b], unit, 8 * half, codes);
        Format::scales(blocks[b], prepared, unit, 8 * half, scales);
        each<kRows>([&] [[gnu::always_inline]] (auto i) {
          add_unit<Format>(codes, scales, x[i * a.x_stride], total[half][i]);
        });
      });
    }
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    _mm256_storeu_ps(out + i * a.out_stride, total[0][i]);
    _mm256_storeu_ps(out + i * a.out_stride + 8, total[1][i]);
  });
}

template <typename Format, int kRows>
void matmul_rows(const IntMatmulArgs& a) {
  for (int g = 0; g < a.groups; ++g) {
    multiply_group<Format, kRows>(a, a.weights + static_cast<size_t>(g) * a.group_bytes, a.out + 16 * g);
  }
}

template <typename Format>
void matmul(const IntMatmulArgs& a) {
  static constexpr IntMatmul kByRows[kMaxTileRows] = {
      matmul_rows<Format, 1>, matmul_rows<Format, 2>, matmul_rows<Format, 3>, matmul_rows<Format, 4>,
      matmul_rows<Format, 5>, matmul_rows<Format, 6>, matmul_rows<Format, 7>, matmul_rows<Format, 8>};
  kByRows[a.m - 1](a);
}

}  // namespace

void install_int_matmul(KernelTable& table) {
  table.matmul[static_cast<int>(IntWeight::q4_0)] = matmul<Q4_0>;
  table.matmul[static_cast<int>(IntWeight::q4_1)] = matmul<Q4_1>;
  table.matmul[static_cast<int>(IntWeight::q5_0)] = matmul<Q5_0>;
  table.matmul[static_cast<int>(IntWeight::q8_0)] = matmul<Q8_0>;
  table.matmul[static_cast<int>(IntWeight::q4_k)] = matmul<Q4_K>;
  table.matmul[static_cast<int>(IntWeight::q6_k)] = matmul<Q6_K>;
}

}  // namespace nanomind::avx2
