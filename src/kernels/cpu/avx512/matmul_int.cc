// SPDX-License-Identifier: Apache-2.0
// Integer matmul with VNNI: a vector of codes (16 rows x 4 columns) meets four broadcast bytes of an activation, once
// for its high and once for its low plane. Each unit of weights is unpacked once for all activation rows.
#include "kernels/cpu/avx512/all_formats.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

[[gnu::always_inline]] inline __m512i broadcast4(const int8_t* bytes) {
  int32_t dword;
  __builtin_memcpy(&dword, bytes, sizeof dword);
  return _mm512_set1_epi32(dword);
}

// start + sum over vectors kFirst..kFirst + kCount - 1 of codes times the activation's codes (256 * hi + lo), as floats
// of 16 rows.
template <int kFirst, int kCount>
[[gnu::always_inline]] inline __m512 dot(const Codes& q, const ActivationUnit& x, __m512i start) {
  __m512i hi = _mm512_setzero_si512(), lo = start;
  each<kCount>([&] [[gnu::always_inline]] (auto p) {
    hi = _mm512_dpbusd_epi32(hi, q[kFirst + p], broadcast4(x.hi + 4 * (kFirst + p)));
    lo = _mm512_dpbusd_epi32(lo, q[kFirst + p], broadcast4(x.lo + 4 * (kFirst + p)));
  });
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
template <typename Format>
[[gnu::always_inline]] inline void add_unit(const Codes& q, const Scales& s, const ActivationUnit& x, __m512& total) {
  constexpr int kOffset = Format::kTraits.offset;
  const __m512i sums[2] = {_mm512_set1_epi32(x.sum[0]), _mm512_set1_epi32(x.sum[1])};
  __m512 value;
  if constexpr (Format::kTraits.halves == 2) {
    const __m512 second = dot<4, 4>(q, x, minus_offset<kOffset>(sums[1]));
    value =
        _mm512_fmadd_ps(dot<0, 4>(q, x, minus_offset<kOffset>(sums[0])), s.scale[0], _mm512_mul_ps(second, s.scale[1]));
    if constexpr (Format::kTraits.min) {
      value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[0]), s.min[0], value);
      value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[1]), s.min[1], value);
    }
  } else {
    value = _mm512_mul_ps(dot<0, 8>(q, x, minus_offset<kOffset>(_mm512_add_epi32(sums[0], sums[1]))), s.scale[0]);
  }
  total = _mm512_fmadd_ps(value, _mm512_set1_ps(x.scale), total);
  if constexpr (Format::kTraits.min && Format::kTraits.halves == 1) {
    total = _mm512_fmadd_ps(s.min[0], _mm512_set1_ps(x.scaled_sum), total);
  }
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
      each<kRows>(
          [&] [[gnu::always_inline]] (auto i) { add_unit<Format>(codes, scales, x[i * a.x_stride], total[i]); });
    }
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) { _mm512_storeu_ps(out + i * a.out_stride, total[i]); });
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

}  // namespace nanomind::avx512
