// SPDX-License-Identifier: Apache-2.0
// Products of many rows with activations of 8 bits per 32 columns, half the work of gemm.cc. Codes become signed bytes
// in a panel in the first-level cache, activations unsigned ones (x + zero), as VPDPBUSD wants one of each; the zero is
// taken away by a start value of the sums. It is 128, or 32 for values that are hardly below 0: behind a GELU, which is
// never below -0.17, steps are up to 1.75 times as fine so. Scales are applied per unit of 32 columns.
#include "kernels/cpu/avx512/all_formats.h"
#include "kernels/cpu/avx512/dot.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

constexpr int kPanelGroups = 2;
constexpr int kTile = 6;  // activation rows: kTile * kPanelGroups sums, as integers and as floats
constexpr int kPanelUnits = 8;

constexpr float kTiny = 1e-34f;  // a unit of smaller numbers counts as zero: the reciprocal of its scale is infinite

// Measured on prompts: the mean divergence from the float reference so brought was above 4e-4 for models 576 to 896
// wide.
constexpr int64_t kMinWidth = 1024;

constexpr int kMiddle = 128, kLow = 32;  // zeros

// kTile activation rows of a unit: x = scale * (q - zero), columns in the order of kColumnOrder. Packed activations are
// [tile][unit] of these.
struct alignas(64) Activations {
  uint8_t q[kTile][kUnitColumns];
  float scale[kTile];
  float scaled_sum[kTile];   // scale * sum of (q - zero)
  int16_t first_sum[kTile];  // sum of (q - zero) over the first 16 columns
};

// One unit of kPanelGroups row groups.
struct alignas(64) PanelUnit {
  int8_t q[8][kPanelGroups][64];
  int32_t start[2][kPanelGroups][16];  // -zero * sum of the codes, of each half that has a scale
  float scale[2][kPanelGroups][16];
  float min[2][kPanelGroups][16];  // of each half that has one: the first one's less the second's, the second's
};

int64_t units_of(int64_t columns) { return (columns + kUnitColumns - 1) / kUnitColumns; }

size_t packed_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>((rows + kTile - 1) / kTile * units_of(columns)) * sizeof(Activations);
}

size_t scratch_bytes(int64_t) { return kPanelUnits * sizeof(PanelUnit); }

// The scale that makes the largest value of 16 the last code.
template <int kZero>
float scale_of(__m512 low, __m512 high) {
  if constexpr (kZero == kMiddle) {
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high))) / 127;
  } else {
    const float above = _mm512_reduce_max_ps(_mm512_max_ps(low, high)) / (255 - kZero);
    const float below = _mm512_reduce_min_ps(_mm512_min_ps(low, high)) / -kZero;
    return above > below ? above : below;
  }
}

template <int kZero>
void pack_unit(const float* x, int64_t n, Activations& unit, int64_t i) {
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes(n), x);
  const __m512 high = _mm512_maskz_loadu_ps(first_lanes(n - 16), x + 16);
  const float scale = scale_of<kZero>(low, high);
  const __m512 inverse = _mm512_set1_ps(scale > kTiny ? 1 / scale : 0);
  const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
  const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
  const int32_t first = _mm512_reduce_add_epi32(a), sum = first + _mm512_reduce_add_epi32(b);
  const __m512i zero = _mm512_set1_epi32(kZero);
  const __m256i bytes = _mm256_set_m128i(_mm512_cvtusepi32_epi8(_mm512_add_epi32(b, zero)),
                                         _mm512_cvtusepi32_epi8(_mm512_add_epi32(a, zero)));
  const __m256i order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                                         0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  _mm256_store_si256(reinterpret_cast<__m256i*>(unit.q[i]), _mm256_shuffle_epi8(bytes, order));
  unit.scale[i] = scale;
  unit.scaled_sum[i] = scale * static_cast<float>(sum);
  unit.first_sum[i] = static_cast<int16_t>(first);
}

template <int kZero>
void pack(const float* x, int64_t begin, int64_t n, int64_t columns, int64_t row, std::byte* packed) {
  auto* unit = reinterpret_cast<Activations*>(packed) + row / kTile * units_of(columns) + begin / kUnitColumns;
  for (int64_t c = 0; c < n; c += kUnitColumns, ++unit) pack_unit<kZero>(x + c, n - c, *unit, row % kTile);
}

// Integer weights: codes as they are, less their offset.
template <typename Format, int kZero>
struct Panel {
  using Block = typename Format::Block;
  static constexpr int kUnits = Block::kColumns / kUnitColumns;
  static constexpr int kHalves = Format::kTraits.halves;
  static constexpr bool kMin = Format::kTraits.min;

  // `count` units from `first` on of one row group.
  static void unpack(const std::byte* group, int64_t first, int count, int g, PanelUnit* panel) {
    const auto* blocks = reinterpret_cast<const Block*>(group);
    typename Format::Prepared prepared;
    for (int u = 0; u < count; ++u) {
      const Block& block = blocks[(first + u) / kUnits];
      const int unit = static_cast<int>((first + u) % kUnits);
      if (u == 0 || unit == 0) Format::prepare(block, prepared);
      prefetch_lines(block, unit);
      unpack_unit(block, prepared, unit, g, panel[u]);
    }
  }

 private:
  // The same unit of the next panel.
  [[gnu::always_inline]] static void prefetch_lines(const Block& block, int unit) {
    constexpr int kBytes = static_cast<int>(sizeof(Block)) / kUnits;
    const std::byte* at = reinterpret_cast<const std::byte*>(&block) + (unit + kPanelUnits) * kBytes;
    each<(kBytes + 63) / 64>([&] [[gnu::always_inline]] (auto line) { __builtin_prefetch(at + 64 * line); });
  }

  [[gnu::always_inline]] static void unpack_unit(const Block& block, const typename Format::Prepared& prepared,
                                                 int unit, int g, PanelUnit& panel) {
    Codes q;
    Scales s;
    Format::codes(block, unit, q);
    Format::scales(block, prepared, unit, s);
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(Format::kTraits.offset));
    each<kHalves>([&] [[gnu::always_inline]] (auto h) {
      __m512i start = _mm512_setzero_si512();
      each<8 / kHalves>([&] [[gnu::always_inline]] (auto k) {
        const __m512i code = _mm512_sub_epi8(q[h * 4 + k], offset);
        start = _mm512_dpbusd_epi32(start, _mm512_set1_epi8(static_cast<char>(kZero)), code);
        _mm512_store_si512(panel.q[h * 4 + k][g], code);
      });
      _mm512_store_si512(panel.start[h][g], _mm512_sub_epi32(_mm512_setzero_si512(), start));
      _mm512_store_ps(panel.scale[h][g], s.scale[h]);
    });
    if constexpr (kMin) {
      _mm512_store_ps(panel.min[kHalves - 1][g], s.min[kHalves - 1]);
      if constexpr (kHalves == 2) _mm512_store_ps(panel.min[0][g], _mm512_sub_ps(s.min[0], s.min[1]));
    }
  }
};

// 16-bit floats, rounded to 8 bits per unit as Q8_0 has them.
template <typename Float>
struct Rounded {
  using Block = typename Float::Block;
  static constexpr Traits kTraits{.bits = 8, .offset = 0, .halves = 1, .min = false};
};

template <typename Float, int kZero>
struct Panel<Rounded<Float>, kZero> {
  static_assert(Float::Block::kColumns == kUnitColumns);

  static void unpack(const std::byte* group, int64_t first, int count, int g, PanelUnit* panel) {
    const auto* blocks = reinterpret_cast<const typename Float::Block*>(group) + first;
    for (int u = 0; u < count; ++u) unpack_unit(blocks[u], g, panel[u]);
  }

 private:
  static void unpack_unit(const typename Float::Block& block, int g, PanelUnit& panel) {
    __m512 bound = _mm512_setzero_ps();
    for (int c = 0; c < kUnitColumns; ++c) bound = _mm512_max_ps(bound, _mm512_abs_ps(Float::widen(block.w[c])));
    const __mmask16 large = _mm512_cmp_ps_mask(bound, _mm512_set1_ps(kTiny), _CMP_GT_OQ);
    const __m512 inverse = _mm512_maskz_div_ps(large, _mm512_set1_ps(127), bound);
    __m512i start = _mm512_setzero_si512();
    for (int p = 0; p < 8; ++p) {
      __m512i codes = _mm512_setzero_si512();
      each<4>([&] [[gnu::always_inline]] (auto i) {
        // The order within four columns is the same everywhere. A constant: an array looked up would be an object.
        constexpr int kWithin = kColumnOrder[i];
        static_assert(kColumnOrder[4 + i] == 4 + kWithin);
        const int column = 4 * p + kWithin;
        const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(Float::widen(block.w[column]), inverse));
        codes = _mm512_or_si512(codes, _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(255)), 8 * i));
      });
      start = _mm512_dpbusd_epi32(start, _mm512_set1_epi8(static_cast<char>(kZero)), codes);
      _mm512_store_si512(panel.q[p][g], codes);
    }
    _mm512_store_si512(panel.start[0][g], _mm512_sub_epi32(_mm512_setzero_si512(), start));
    _mm512_store_ps(panel.scale[0][g], _mm512_mul_ps(bound, _mm512_set1_ps(1.0F / 127)));
  }
};

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
[[gnu::noinline]] void multiply_tile(const PanelUnit* panel, const Activations* x, const Activations* next, int units,
                                     int64_t first, float* out, int64_t stride) {
  __m512 total[kRows][kGroups];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      total[i][g] = first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out + i * stride + 16 * g);
    }
  }
#pragma GCC unroll 1
  for (int u = 0; u < units; ++u) {
    each<sizeof(Activations) / 64>([&] [[gnu::always_inline]] (auto line) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(next + u) + 64 * line);
    });
    add_unit<Format, kRows, kGroups>(panel[u], x[u], total);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) _mm512_storeu_ps(out + i * stride + 16 * g, total[i][g]);
  }
}

template <typename Format, int kGroups>
void multiply_panel(const GemmArgs& a, const PanelUnit* panel, int64_t first, int units, float* out) {
  using Tile = void (*)(const PanelUnit*, const Activations*, const Activations*, int, int64_t, float*, int64_t);
  static constexpr Tile kByRows[kTile] = {multiply_tile<Format, 1, kGroups>, multiply_tile<Format, 2, kGroups>,
                                          multiply_tile<Format, 3, kGroups>, multiply_tile<Format, 4, kGroups>,
                                          multiply_tile<Format, 5, kGroups>, multiply_tile<Format, 6, kGroups>};
  const Activations* x = reinterpret_cast<const Activations*>(a.x) + first;
  for (int64_t row = 0; row < a.rows; row += kTile, x += units_of(a.columns)) {
    const int64_t rows = a.rows - row < kTile ? a.rows - row : kTile;
    kByRows[rows - 1](panel, x, x + units_of(a.columns), units, first, out + row * a.out_stride, a.out_stride);
  }
}

template <typename Format, int kZero>
void multiply(const GemmArgs& a) {
  auto* panel = reinterpret_cast<PanelUnit*>(a.scratch);
  const int64_t units = units_of(a.columns);
  for (int group = 0; group < a.groups; group += kPanelGroups) {
    const int count = a.groups - group < kPanelGroups ? a.groups - group : kPanelGroups;
    for (int64_t first = 0; first < units; first += kPanelUnits) {
      const int width = units - first < kPanelUnits ? static_cast<int>(units - first) : kPanelUnits;
      for (int g = 0; g < count; ++g) {
        Panel<Format, kZero>::unpack(a.weights + static_cast<size_t>(group + g) * a.group_bytes, first, width, g,
                                     panel);
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
