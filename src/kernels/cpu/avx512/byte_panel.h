// SPDX-License-Identifier: Apache-2.0
// What the products of gemm_fast.cc multiply: activations of 8 bits per 32 columns, and panels of weights as signed
// bytes in the first-level cache. Activations are unsigned (x + zero), as VPDPBUSD wants one of each; the zero is taken
// away by a start value of the sums. It is 128, or 32 for values that are hardly below 0: behind a GELU, which is never
// below -0.17, steps are up to 1.75 times as fine so.
#pragma once

#include "kernels/cpu/avx512/all_formats.h"

namespace nanomind::avx512 {
namespace {

constexpr int kPanelGroups = 2;
constexpr int kTile = 6;  // activation rows: kTile * kPanelGroups sums, as integers and as floats
constexpr int kPanelUnits = 8;

constexpr float kTiny = 1e-34f;  // a unit of smaller numbers counts as zero: the reciprocal of its scale is infinite

constexpr int kMiddle = 128, kLow = 32;  // zeros

// kTile activation rows of a unit: x = scale * (q - zero), columns in the order of kColumnOrder.
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

struct alignas(64) Panel {
  PanelUnit units[kPanelUnits];
  float lost[kPanelGroups][16];  // see Rounded
};

int64_t units_of(int64_t columns) { return (columns + kUnitColumns - 1) / kUnitColumns; }

// Packed activations: the mean of each column (see Rounded) in the order of the codes, then units.
float* means(std::byte* packed) { return reinterpret_cast<float*>(packed); }
const float* means(const std::byte* packed) { return reinterpret_cast<const float*>(packed); }
size_t means_bytes(int64_t columns) { return static_cast<size_t>(units_of(columns) * kUnitColumns) * sizeof(float); }

// The units of a tile of rows; the next tile's follow.
Activations* tile(std::byte* packed, int64_t columns, int64_t index) {
  return reinterpret_cast<Activations*>(packed + means_bytes(columns)) + index * units_of(columns);
}
const Activations* tile(const std::byte* packed, int64_t columns, int64_t index) {
  return reinterpret_cast<const Activations*>(packed + means_bytes(columns)) + index * units_of(columns);
}

size_t packed_bytes(int64_t rows, int64_t columns) {
  const int64_t tiles = (rows + kTile - 1) / kTile;
  return means_bytes(columns) + static_cast<size_t>(tiles * units_of(columns)) * sizeof(Activations);
}

// The scale that makes the largest value of 32 the last code.
template <int kZero>
float scale_of(__m512 low, __m512 high) {
  if constexpr (kZero == kMiddle) {
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high))) * (1.0F / 127);
  } else {
    const __m512 above = _mm512_mul_ps(_mm512_max_ps(low, high), _mm512_set1_ps(1.0F / (255 - kZero)));
    const __m512 below = _mm512_mul_ps(_mm512_min_ps(low, high), _mm512_set1_ps(-1.0F / kZero));
    return _mm512_reduce_max_ps(_mm512_max_ps(above, below));
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
  const __m512i zero = _mm512_set1_epi32(kZero);
  const __m256i bytes = _mm256_set_m128i(_mm512_cvtusepi32_epi8(_mm512_add_epi32(b, zero)),
                                         _mm512_cvtusepi32_epi8(_mm512_add_epi32(a, zero)));
  const __m256i order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                                         0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  _mm256_store_si256(reinterpret_cast<__m256i*>(unit.q[i]), _mm256_shuffle_epi8(bytes, order));
  const __m256i sums = _mm256_sad_epu8(bytes, _mm256_setzero_si256());  // of eight bytes each
  const auto both = [](__m128i halves) {
    return _mm_cvtsi128_si32(_mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves)));
  };
  const int32_t first = both(_mm256_castsi256_si128(sums)) - 16 * kZero;
  const int32_t sum = first + both(_mm256_extracti128_si256(sums, 1)) - 16 * kZero;
  unit.scale[i] = scale;
  unit.scaled_sum[i] = scale * static_cast<float>(sum);
  unit.first_sum[i] = static_cast<int16_t>(first);
}

template <int kZero>
void pack(const float* x, int64_t begin, int64_t n, int64_t columns, int64_t row, std::byte* packed) {
  auto* unit = tile(packed, columns, row / kTile) + begin / kUnitColumns;
  for (int64_t c = 0; c < n; c += kUnitColumns, ++unit) pack_unit<kZero>(x + c, n - c, *unit, row % kTile);
}

// The means of a unit's columns over `rows` rows, whose tiles are `stride` units apart.
template <int kZero>
void average_unit(const Activations* unit, int64_t stride, int64_t rows, float* mean) {
  __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
  const auto add = [&] [[gnu::always_inline]] (__m512 & sum, const uint8_t* q, float scale) {
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(q)));
    const __m512 x = _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(kZero)));
    sum = _mm512_fmadd_ps(x, _mm512_set1_ps(scale), sum);
  };
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t i = row % kTile;
    if (row > 0 && i == 0) unit += stride;
    add(low, unit->q[i], unit->scale[i]);
    add(high, unit->q[i] + 16, unit->scale[i]);
  }
  const __m512 share = _mm512_set1_ps(1.0F / static_cast<float>(rows));
  _mm512_storeu_ps(mean, _mm512_mul_ps(low, share));
  _mm512_storeu_ps(mean + 16, _mm512_mul_ps(high, share));
}

template <int kZero>
void average(int64_t rows, int64_t begin, int64_t n, int64_t columns, std::byte* packed) {
  for (int64_t c = begin; c < begin + n; c += kUnitColumns) {
    average_unit<kZero>(tile(packed, columns, 0) + c / kUnitColumns, units_of(columns), rows, means(packed) + c);
  }
}

// Integer weights: codes as they are, less their offset.
template <typename Format, int kZero>
struct Unpacker {
  using Block = typename Format::Block;
  static constexpr int kUnits = Block::kColumns / kUnitColumns;
  static constexpr int kHalves = Format::kTraits.halves;
  static constexpr bool kMin = Format::kTraits.min;

  // `count` units from `first` on of one row group.
  static void unpack(const std::byte* group, int64_t first, int count, const float*, int g, Panel& panel) {
    const auto* blocks = reinterpret_cast<const Block*>(group);
    typename Format::Prepared prepared;
    for (int u = 0; u < count; ++u) {
      const Block& block = blocks[(first + u) / kUnits];
      const int unit = static_cast<int>((first + u) % kUnits);
      if (u == 0 || unit == 0) Format::prepare(block, prepared);
      prefetch_lines(block, unit);
      unpack_unit(block, prepared, unit, g, panel.units[u]);
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

// 16-bit floats, rounded to 8 bits per unit as Q8_0 has them. What all rows of activations have in common, their mean,
// meets what the rounding took from the weights: an error that is the same in all rows, and in towers most of the
// error, as attention and the residual stream average others out. It is computed and given back to the sums.
template <typename Float>
struct Rounded {
  using Block = typename Float::Block;
  static constexpr Traits kTraits{.bits = 8, .offset = 0, .halves = 1, .min = false};
};

template <typename Format>
constexpr bool kIsRounded = false;
template <typename Float>
constexpr bool kIsRounded<Rounded<Float>> = true;

template <typename Float, int kZero>
struct Unpacker<Rounded<Float>, kZero> {
  static_assert(Float::Block::kColumns == kUnitColumns);

  static void unpack(const std::byte* group, int64_t first, int count, const float* mean, int g, Panel& panel) {
    const auto* blocks = reinterpret_cast<const typename Float::Block*>(group) + first;
    __m512 lost = _mm512_setzero_ps();
    for (int u = 0; u < count; ++u) {
      const __m512 of_unit = unpack_unit(blocks[u], mean + (first + u) * kUnitColumns, g, panel.units[u]);
      lost = _mm512_add_ps(lost, of_unit);
    }
    _mm512_store_ps(panel.lost[g], lost);
  }

 private:
  // The largest magnitude of each row, whose bits as integers are in the same order.
  [[gnu::always_inline]] static __m512 largest(const typename Float::Block& block) {
    __m512i most = _mm512_setzero_si512();
    each<kUnitColumns / 2>([&] [[gnu::always_inline]] (auto pair) {
      const __m512i w = _mm512_load_si512(block.w[2 * pair]);
      most = _mm512_max_epu16(most, _mm512_and_si512(w, _mm512_set1_epi16(0x7FFF)));
    });
    alignas(32) uint16_t column[16];
    const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
    _mm256_store_si256(reinterpret_cast<__m256i*>(column), half);
    return Float::widen(column);
  }

  // Returns the sum of `mean` times what rounding took.
  static __m512 unpack_unit(const typename Float::Block& block, const float* mean, int g, PanelUnit& panel) {
    const __m512 bound = largest(block);
    const __mmask16 some = _mm512_cmp_ps_mask(bound, _mm512_set1_ps(kTiny), _CMP_GT_OQ);
    const __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(127), bound);
    // Added to a number of this size, one below 2^22 is rounded to an integer, which the lower bits then are.
    const __m512 large = _mm512_set1_ps(0x1.8p23F);
    __m512i start = _mm512_setzero_si512();
    __m512 lost = _mm512_setzero_ps();
    for (int p = 0; p < 8; ++p) {
      __m512i bits[4];
      each<4>([&] [[gnu::always_inline]] (auto i) {
        // The order within four columns is the same everywhere. A constant: an array looked up would be an object.
        constexpr int kWithin = kColumnOrder[i];
        static_assert(kColumnOrder[4 + i] == 4 + kWithin);
        const __m512 w = Float::widen(block.w[4 * p + kWithin]);
        const __m512 code = _mm512_fmadd_ps(w, inverse, large);
        bits[i] = _mm512_castps_si512(code);
        const __m512 error = _mm512_fmsub_ps(w, inverse, _mm512_sub_ps(code, large));
        lost = _mm512_fmadd_ps(error, _mm512_set1_ps(mean[4 * p + i]), lost);
      });
      const __m512i even = _mm512_mask_blend_epi8(0x2222222222222222, bits[0], _mm512_slli_epi32(bits[1], 8));
      const __m512i odd =
          _mm512_mask_blend_epi8(0x8888888888888888, _mm512_slli_epi32(bits[2], 16), _mm512_slli_epi32(bits[3], 24));
      const __m512i codes = _mm512_mask_blend_epi16(0xAAAAAAAA, even, odd);
      start = _mm512_dpbusd_epi32(start, _mm512_set1_epi8(static_cast<char>(kZero)), codes);
      _mm512_store_si512(panel.q[p][g], codes);
    }
    _mm512_store_si512(panel.start[0][g], _mm512_sub_epi32(_mm512_setzero_si512(), start));
    const __m512 scale = _mm512_mul_ps(bound, _mm512_set1_ps(1.0F / 127));
    _mm512_store_ps(panel.scale[0][g], scale);
    return _mm512_mul_ps(lost, scale);
  }
};

}  // namespace
}  // namespace nanomind::avx512
