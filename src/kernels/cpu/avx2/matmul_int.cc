// SPDX-License-Identifier: Apache-2.0
// Integer matmul with byte multiplies of AVX2: 8 rows x 4 columns of codes meet four broadcast bytes of an activation
// plane, pairs of products are summed in 16 bits for as long as they cannot overflow, then widened. 8-bit codes would
// overflow at once, so they are taken as two nibbles.
#include "kernels/cpu/avx2/all_formats.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

// maddubs takes codes of up to 6 bits; wider ones are two operands of 4 bits, the low nibbles first.
constexpr int operand_bits(Traits traits) { return traits.bits > 6 ? 4 : traits.bits; }
constexpr int operand_parts(Traits traits) { return traits.bits > 6 ? 2 : 1; }

// Vector p % 8 meets dword p % 8 of a plane; p / 8 is the part.
template <typename Format>
using Operands = __m256i[8 * operand_parts(Format::kTraits)];

template <typename Format>
[[gnu::always_inline]] inline void operands(const typename Format::Block& block, int unit, int row,
                                            Operands<Format>& q) {
  if constexpr (operand_parts(Format::kTraits) == 1) {
    Format::codes(block, unit, row, q);
  } else {
    Codes codes;
    Format::codes(block, unit, row, codes);
    each<8>([&] [[gnu::always_inline]] (auto p) { nibbles(codes[p], q[p], q[8 + p]); });
  }
}

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
[[gnu::always_inline]] inline __m256i dot(const Operands<Format>& q, const ActivationUnit& x, int32_t start) {
  constexpr int kBits = operand_bits(Format::kTraits);
  __m256i hi = dot_plane<kBits, kCount>(q + kFirst, x.hi + 4 * kFirst);
  __m256i lo = dot_plane<kBits, kCount>(q + kFirst, x.lo + 4 * kFirst);
  if constexpr (operand_parts(Format::kTraits) == 2) {
    hi = _mm256_add_epi32(hi, _mm256_slli_epi32(dot_plane<kBits, kCount>(q + 8 + kFirst, x.hi + 4 * kFirst), kBits));
    lo = _mm256_add_epi32(lo, _mm256_slli_epi32(dot_plane<kBits, kCount>(q + 8 + kFirst, x.lo + 4 * kFirst), kBits));
  }
  return _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(hi, 8), lo), _mm256_set1_epi32(start));
}

// total += w . x over one unit.
template <typename Format>
[[gnu::always_inline]] inline void add_unit(const Operands<Format>& q, const Scales& s, const ActivationUnit& x,
                                            __m256& total) {
  constexpr Traits kTraits = Format::kTraits;
  __m256 value;
  if constexpr (kTraits.halves == 2) {
    const __m256i first = dot<Format, 0, 4>(q, x, -kTraits.offset * x.sum[0]);
    const __m256i second = dot<Format, 4, 4>(q, x, -kTraits.offset * x.sum[1]);
    value =
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), s.scale[0], _mm256_mul_ps(_mm256_cvtepi32_ps(second), s.scale[1]));
    if constexpr (kTraits.min) {
      value = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(x.sum[0])), s.min[0], value);
      value = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(x.sum[1])), s.min[1], value);
    }
  } else {
    const int32_t sum = x.sum[0] + x.sum[1];
    const __m256i all = dot<Format, 0, 8>(q, x, -kTraits.offset * sum);
    value = _mm256_mul_ps(_mm256_cvtepi32_ps(all), s.scale[0]);
    if constexpr (kTraits.min) value = _mm256_fmadd_ps(_mm256_set1_ps(static_cast<float>(sum)), s.min[0], value);
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
        Operands<Format> q;
        Scales scales;
        operands<Format>(blocks[b], unit, 8 * half, q);
        Format::scales(blocks[b], prepared, unit, 8 * half, scales);
        each<kRows>(
            [&] [[gnu::always_inline]] (auto i) { add_unit<Format>(q, scales, x[i * a.x_stride], total[half][i]); });
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
  for_each_format([&]<typename Format>(IntWeight type) { table.matmul[static_cast<int>(type)] = matmul<Format>; });
}

}  // namespace nanomind::avx2
