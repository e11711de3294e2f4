// SPDX-License-Identifier: Apache-2.0
// Products of weights kept as floats: a column of 16 rows is widened once for all activation rows and multiplied by
// FMA. Few rows leave registers for several row groups, which are several streams of memory and several chains of sums.
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

template <typename Format, int kRows, int kGroups>
[[gnu::noinline]] void tile(const FloatMatmulArgs& a, int first) {
  using Block = typename Format::Block;
  constexpr int kChains = kRows * kGroups < 8 ? 2 : 1;  // sums per output, for the latency of FMA
  const std::byte* weights = a.weights + static_cast<size_t>(first) * a.group_bytes;
  __m512 total[kGroups][kRows][kChains];
  each<kGroups>([&] [[gnu::always_inline]] (auto g) {
    each<kRows>([&] [[gnu::always_inline]] (auto i) {
      each<kChains>([&] [[gnu::always_inline]] (auto k) { total[g][i][k] = _mm512_setzero_ps(); });
    });
  });

  const auto add_column = [&] [[gnu::always_inline]] (const std::byte* block, int column, const float* x, auto chain) {
    each<kGroups>([&] [[gnu::always_inline]] (auto g) {
      const __m512 w = Format::widen(reinterpret_cast<const Block*>(block + g * a.group_bytes)->w[column]);
      each<kRows>([&] [[gnu::always_inline]] (auto i) {
        total[g][i][chain] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[i * a.x_stride + column]), total[g][i][chain]);
      });
    });
  };
  int64_t c = 0;
  for (; c < a.columns; c += Block::kColumns) {
    const std::byte* block = weights + c / Block::kColumns * static_cast<int64_t>(sizeof(Block));
    const int count = a.columns - c < Block::kColumns ? static_cast<int>(a.columns - c) : Block::kColumns;
    int column = 0;
    for (; column + kChains <= count; column += kChains) {
      each<kChains>([&] [[gnu::always_inline]] (auto k) { add_column(block, column + k, a.x + c, k); });
    }
    for (; column < count; ++column) add_column(block, column, a.x + c, Index<0>());
  }

  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kGroups>([&] [[gnu::always_inline]] (auto g) {
      __m512 sum = total[g][i][0];
      if constexpr (kChains == 2) sum = _mm512_add_ps(sum, total[g][i][1]);
      _mm512_storeu_ps(a.out + i * a.out_stride + 16 * (first + g), sum);
    });
  });
}

template <typename Format, int kRows>
void matmul_rows(const FloatMatmulArgs& a) {
  constexpr int kStreams = kRows <= 4 ? 4 : 2;
  int g = 0;
  for (; g + kStreams <= a.groups; g += kStreams) tile<Format, kRows, kStreams>(a, g);
  for (; g < a.groups; ++g) tile<Format, kRows, 1>(a, g);
}

template <typename Format>
void matmul(const FloatMatmulArgs& a) {
  static constexpr FloatMatmul kByRows[kMaxTileRows] = {
      matmul_rows<Format, 1>, matmul_rows<Format, 2>, matmul_rows<Format, 3>, matmul_rows<Format, 4>,
      matmul_rows<Format, 5>, matmul_rows<Format, 6>, matmul_rows<Format, 7>, matmul_rows<Format, 8>};
  kByRows[a.m - 1](a);
}

}  // namespace

void install_float_matmul(KernelTable& table) {
  table.matmul_float[static_cast<int>(FloatWeight::f32)] = matmul<F32>;
  table.matmul_float[static_cast<int>(FloatWeight::f16)] = matmul<F16>;
  table.matmul_float[static_cast<int>(FloatWeight::bf16)] = matmul<Bf16>;
}

}  // namespace nanomind::avx512
