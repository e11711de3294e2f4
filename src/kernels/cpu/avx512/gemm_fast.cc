// SPDX-License-Identifier: Apache-2.0
// Products of many rows with activations of 8 bits per 32 columns, half the work of gemm.cc. A panel of weights meets
// tiles of activations (byte_panel.h), and scales are applied per unit of 32 columns.
#include "kernels/cpu/avx512/byte_panel.h"
#include "kernels/cpu/avx512/dot.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

// Measured on prompts: the mean divergence from the float reference so brought was above 4e-4 for models 576 to 896
// wide.
constexpr int64_t kMinWidth = 1024;

size_t scratch_bytes(int64_t) { return sizeof(Panel); }

// total += panel unit times kRows activation rows.
template <typename Format, int kRows, int kGroups>
[[gnu::always_inline]] inline void add_unit(const PanelUnit& w, const Activations& x, __m512 (&total)[kRows][kGroups]) {
  constexpr int kHalves = Format::kTraits.halves;
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    __m512i sum[kRows][kGroups];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) sum[i][g] = _mm512_load_si512(w.start[h][g]);
    }
#pragma GCC unroll 8
    for (int p = h * 4; p < h * 4 + 8 / kHalves; ++p) {
      __m512i codes[kGroups];
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) codes[g] = _mm512_load_si512(w.q[p][g]);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        int32_t quad;
        __builtin_memcpy(&quad, &x.q[i][4 * p], sizeof quad);
        const __m512i v = _mm512_set1_epi32(quad);
#pragma GCC unroll 8
        for (int g = 0; g < kGroups; ++g) add_quads(sum[i][g], v, codes[g]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i][g]), _mm512_load_ps(w.scale[h][g]));
        total[i][g] = _mm512_fmadd_ps(value, _mm512_set1_ps(x.scale[i]), total[i][g]);
      }
    }
  }
  if constexpr (Format::kTraits.min) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        total[i][g] =
            _mm512_fmadd_ps(_mm512_load_ps(w.min[kHalves - 1][g]), _mm512_set1_ps(x.scaled_sum[i]), total[i][g]);
        if constexpr (kHalves == 2) {
          const __m512 first = _mm512_set1_ps(x.scale[i] * static_cast<float>(x.first_sum[i]));
          total[i][g] = _mm512_fmadd_ps(_mm512_load_ps(w.min[0][g]), first, total[i][g]);
        }
      }
    }
  }
}

// out (+)= `units` units of a panel times kRows activation rows; `first` says that these are the first columns.
template <typename Format, int kRows, int kGroups>
[[gnu::noinline]] void multiply_tile(const Panel& panel, const Activations* x, const Activations* next, int units,
                                     int64_t first, float* out, int64_t stride) {
  __m512 total[kRows][kGroups];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      total[i][g] = first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out + i * stride + 16 * g);
      if constexpr (kIsRounded<Format>) total[i][g] = _mm512_add_ps(total[i][g], _mm512_load_ps(panel.lost[g]));
    }
  }
#pragma GCC unroll 1
  for (int u = 0; u < units; ++u) {
    each<sizeof(Activations) / 64>([&] [[gnu::always_inline]] (auto line) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(next + u) + 64 * line);
    });
    add_unit<Format, kRows, kGroups>(panel.units[u], x[u], total);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) _mm512_storeu_ps(out + i * stride + 16 * g, total[i][g]);
  }
}

template <typename Format, int kGroups>
void multiply_panel(const GemmArgs& a, const Panel& panel, int64_t first, int units, float* out) {
  using Tile = void (*)(const Panel&, const Activations*, const Activations*, int, int64_t, float*, int64_t);
  static constexpr Tile kByRows[kTile] = {multiply_tile<Format, 1, kGroups>, multiply_tile<Format, 2, kGroups>,
                                          multiply_tile<Format, 3, kGroups>, multiply_tile<Format, 4, kGroups>,
                                          multiply_tile<Format, 5, kGroups>, multiply_tile<Format, 6, kGroups>};
  const Activations* x = tile(a.x, a.columns, 0) + first;
  for (int64_t row = 0; row < a.rows; row += kTile, x += units_of(a.columns)) {
    const int64_t rows = a.rows - row < kTile ? a.rows - row : kTile;
    kByRows[rows - 1](panel, x, x + units_of(a.columns), units, first, out + row * a.out_stride, a.out_stride);
  }
}

template <typename Format, int kZero>
void multiply(const GemmArgs& a) {
  auto& panel = *reinterpret_cast<Panel*>(a.scratch);
  const int64_t units = units_of(a.columns);
  for (int group = 0; group < a.groups; group += kPanelGroups) {
    const int count = a.groups - group < kPanelGroups ? a.groups - group : kPanelGroups;
    for (int64_t first = 0; first < units; first += kPanelUnits) {
      const int width = units - first < kPanelUnits ? static_cast<int>(units - first) : kPanelUnits;
      for (int g = 0; g < count; ++g) {
        const std::byte* weights = a.weights + static_cast<size_t>(group + g) * a.group_bytes;
        Unpacker<Format, kZero>::unpack(weights, first, width, means(a.x), g, panel);
      }
      const auto by_groups = count == 1 ? multiply_panel<Format, 1> : multiply_panel<Format, 2>;
      by_groups(a, panel, first, width, a.out + 16 * group);
    }
  }
}

template <int kZero>
void fill(GemmKernels& gemm) {
  gemm.min_width = kMinWidth;
  gemm.groups_at_once = kPanelGroups;
  gemm.packed_bytes = packed_bytes;
  gemm.scratch_bytes = scratch_bytes;
  gemm.pack = pack<kZero>;
  gemm.average = average<kZero>;
  for_each_format(
      [&]<typename Format>(IntWeight type) { gemm.multiply[static_cast<int>(type)] = multiply<Format, kZero>; });
  gemm.multiply_float[static_cast<int>(FloatWeight::f16)] = multiply<Rounded<F16>, kZero>;
  gemm.multiply_float[static_cast<int>(FloatWeight::bf16)] = multiply<Rounded<Bf16>, kZero>;
}

}  // namespace

void install_gemm_fast(KernelTable& table) {
  fill<kMiddle>(table.gemm_fast);
  fill<kLow>(table.gemm_fast_gelu);
}

}  // namespace nanomind::avx512
