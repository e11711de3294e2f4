// SPDX-License-Identifier: Apache-2.0
// Products of weights kept as floats: a column of 16 rows is widened once for up to four activation rows and multiplied
// by FMA.
#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

constexpr int kTileRows = 4;

// Rows i..i + kRows - 1 times kGroups row groups; kRows * kGroups <= 4, which is 8 sums of 8 rows.
template <typename Format, int kRows, int kGroups>
[[gnu::noinline]] void tile(const FloatMatmulArgs& a, int i, int first) {
  using Block = typename Format::Block;
  const std::byte* weights = a.weights + static_cast<size_t>(first) * a.group_bytes;
  const float* x = a.x + i * a.x_stride;
  float* out = a.out + i * a.out_stride + 16 * first;
  __m256 total[kGroups][kRows][2];
  each<kGroups>([&] [[gnu::always_inline]] (auto g) {
    each<kRows>([&] [[gnu::always_inline]] (auto r) { total[g][r][0] = total[g][r][1] = _mm256_setzero_ps(); });
  });
  for (int64_t c = 0; c < a.columns; ++c) {
    const std::byte* block = weights + c / Block::kColumns * static_cast<int64_t>(sizeof(Block));
    each<kGroups>([&] [[gnu::always_inline]] (auto g) {
      const auto& column = reinterpret_cast<const Block*>(block + g * a.group_bytes)->w[c % Block::kColumns];
      const __m256 low = Format::widen(column), high = Format::widen(column + 8);
      each<kRows>([&] [[gnu::always_inline]] (auto r) {
        const __m256 value = _mm256_set1_ps(x[r * a.x_stride + c]);
        total[g][r][0] = _mm256_fmadd_ps(low, value, total[g][r][0]);
        total[g][r][1] = _mm256_fmadd_ps(high, value, total[g][r][1]);
      });
    });
  }
  each<kGroups>([&] [[gnu::always_inline]] (auto g) {
    each<kRows>([&] [[gnu::always_inline]] (auto r) {
      _mm256_storeu_ps(out + r * a.out_stride + 16 * g, total[g][r][0]);
      _mm256_storeu_ps(out + r * a.out_stride + 16 * g + 8, total[g][r][1]);
    });
  });
}

template <typename Format, int kRows>
void matmul_rows(const FloatMatmulArgs& a, int i, int first, int groups) {
  constexpr int kStreams = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  int g = first;
  for (; g + kStreams <= first + groups; g += kStreams) tile<Format, kRows, kStreams>(a, i, g);
  for (; g < first + groups; ++g) tile<Format, kRows, 1>(a, i, g);
}

template <typename Format>
void matmul(const FloatMatmulArgs& a) {
  using Rows = void (*)(const FloatMatmulArgs&, int, int, int);
  static constexpr Rows kByRows[kTileRows] = {matmul_rows<Format, 1>, matmul_rows<Format, 2>, matmul_rows<Format, 3>,
                                              matmul_rows<Format, 4>};
  // More rows than a tile: each group twice in a row, the second time from cache.
  const int step = a.m > kTileRows ? 1 : a.groups;
  for (int g = 0; g < a.groups; g += step) {
    for (int i = 0; i < a.m; i += kTileRows) kByRows[(a.m - i < kTileRows ? a.m - i : kTileRows) - 1](a, i, g, step);
  }
}

}  // namespace

void install_float_matmul(KernelTable& table) {
  table.matmul_float[static_cast<int>(FloatWeight::f32)] = matmul<F32>;
  table.matmul_float[static_cast<int>(FloatWeight::f16)] = matmul<F16>;
  table.matmul_float[static_cast<int>(FloatWeight::bf16)] = matmul<Bf16>;
}

}  // namespace nanomind::avx2
