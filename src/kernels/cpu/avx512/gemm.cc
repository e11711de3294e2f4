// SPDX-License-Identifier: Apache-2.0
// Products of many rows in 16-bit fixed point. For each 128 columns and 64 rows of weights, both operands become
// integers with one scale per row, the weights as a panel in the first-level cache, where VPDPWSSD sums pairs of
// columns. All formats of 16 bits and less end in the same panel.
#include "kernels/cpu/avx512/all_formats.h"
#include "kernels/cpu/avx512/dot.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

constexpr int kChunk = 128;  // columns of a panel
constexpr int kChunkUnits = kChunk / kUnitColumns;
constexpr int kPairs = kChunk / 2;
constexpr int kPanelGroups = 4;
constexpr int kTile = 6;  // activation rows: 24 sums, four vectors of weights and one of activations: 29 registers

// An int32 holds 128 products because |w| < 2^13 and the |x| of a chunk add up to less than 2^18; so much is left for
// roundings: 3 for w (scale, code, min), 64 for the sum.
constexpr float kLargestW = (1 << 13) - 4;
constexpr float kLargestX = 32766, kLargestSum = (1 << 18) - 65;
constexpr float kTiny = 1e-35f;  // a smaller scale has no finite reciprocal, and counts as zero

// kTile activation rows of a chunk. Packed activations are [tile][chunk] of these.
struct alignas(64) Activations {
  int16_t q[kTile][kChunk];
  float scale[kTile];
};

// Weights of up to kPanelGroups row groups and one chunk: a vector is 16 rows x 2 columns.
struct alignas(64) Panel {
  int16_t q[kPairs][kPanelGroups][32];
  float scale[kPanelGroups][16];
};

int64_t chunks_of(int64_t columns) { return (columns + kChunk - 1) / kChunk; }

size_t packed_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>((rows + kTile - 1) / kTile * chunks_of(columns)) * sizeof(Activations);
}

size_t scratch_bytes(int64_t) { return sizeof(Panel); }

// n <= kChunk floats to fixed point, zeros behind them; returns the scale.
float quantize_chunk(const float* x, int64_t n, int16_t* q) {
  __m512 v[kChunk / 16];
  __m512 largest = _mm512_setzero_ps(), sum = _mm512_setzero_ps();
  each<kChunk / 16>([&] [[gnu::always_inline]] (auto i) {
    v[i] = _mm512_maskz_loadu_ps(first_lanes(n - 16 * i), x + 16 * i);
    const __m512 magnitude = _mm512_abs_ps(v[i]);
    largest = _mm512_max_ps(largest, magnitude);
    sum = _mm512_add_ps(sum, magnitude);
  });
  const float by_largest = _mm512_reduce_max_ps(largest) / kLargestX, by_sum = _mm512_reduce_add_ps(sum) / kLargestSum;
  const float scale = by_sum > by_largest ? by_sum : by_largest;
  const __m512 inverse = _mm512_set1_ps(scale > kTiny ? 1 / scale : 0);
  each<kChunk / 16>([&] [[gnu::always_inline]] (auto i) {
    const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
    _mm256_store_si256(reinterpret_cast<__m256i*>(q + 16 * i), _mm512_cvtsepi32_epi16(codes));
  });
  return scale;
}

void pack(const float* x, int64_t begin, int64_t n, int64_t columns, int64_t row, std::byte* packed) {
  auto* tile = reinterpret_cast<Activations*>(packed) + row / kTile * chunks_of(columns) + begin / kChunk;
  for (int64_t c = 0; c < n; c += kChunk, ++tile) {
    const int64_t count = n - c < kChunk ? n - c : kChunk;
    tile->scale[row % kTile] = quantize_chunk(x + c, count, tile->q[row % kTile]);
  }
}

// The lower halves of 16 dwords in both halves of each.
[[gnu::always_inline]] inline __m512i twice(__m512i v) {
  return _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi32(0xFFFF)), _mm512_slli_epi32(v, 16));
}

[[gnu::always_inline]] inline __m512 reciprocal_scale(__m512 bound) {
  const __mmask16 some = _mm512_cmp_ps_mask(bound, _mm512_set1_ps(kTiny), _CMP_GT_OQ);
  return _mm512_maskz_div_ps(some, _mm512_set1_ps(kLargestW), bound);
}

// One group of integer weights: q = code * scale + zero, scale with as many more bits as the code leaves of 16.
template <typename Format>
struct IntPanel {
  using Block = typename Format::Block;
  static constexpr int kUnits = Block::kColumns / kUnitColumns;
  static constexpr int kShift = 15 - Format::kTraits.bits;
  static constexpr int kHalves = Format::kTraits.halves;

  // Returns how many pairs of columns there are.
  static int unpack(const std::byte* group, int64_t columns, int64_t chunk, int g, Panel& panel) {
    const auto* blocks = reinterpret_cast<const Block*>(group);
    const int64_t first = chunk * kChunkUnits;
    const int64_t all = (columns + Block::kColumns - 1) / Block::kColumns * kUnits;
    const int count = all - first < kChunkUnits ? static_cast<int>(all - first) : kChunkUnits;
    const auto block = [&] [[gnu::always_inline]] (int u) -> const Block& { return blocks[(first + u) / kUnits]; };
    __builtin_prefetch(&block(0) + (kUnits > kChunkUnits ? 1 : kChunkUnits / kUnits));

    Scales scales[kChunkUnits];
    __m512 bound = _mm512_setzero_ps();
    typename Format::Prepared prepared;
    for (int u = 0; u < count; ++u) {
      if (u == 0 || kUnits < kChunkUnits) Format::prepare(block(u), prepared);
      Format::scales(block(u), prepared, static_cast<int>((first + u) % kUnits), scales[u]);
      each<kHalves>([&] [[gnu::always_inline]] (auto h) {
        const __m512 zero = value_of_zero<Format>(scales[u], h);
        const __m512 top = _mm512_fmadd_ps(scales[u].scale[h], _mm512_set1_ps((1 << Format::kTraits.bits) - 1), zero);
        bound = _mm512_max_ps(bound, _mm512_max_ps(_mm512_abs_ps(zero), _mm512_abs_ps(top)));
      });
    }
    const __m512 inverse = reciprocal_scale(bound);
    _mm512_store_ps(panel.scale[g], _mm512_mul_ps(bound, _mm512_set1_ps(1 / kLargestW)));
    for (int u = 0; u < count; ++u) {
      prefetch_lines(block(u), static_cast<int>((first + u) % kUnits));
      unpack_unit(block(u), static_cast<int>((first + u) % kUnits), scales[u], inverse, &panel.q[16 * u][g]);
    }
    return count * kUnitColumns / 2;
  }

 private:
  // The same unit of the next chunk.
  [[gnu::always_inline]] static void prefetch_lines(const Block& block, int unit) {
    constexpr int kBytes = static_cast<int>(sizeof(Block)) / kUnits;
    const std::byte* at = reinterpret_cast<const std::byte*>(&block) + (unit + kChunkUnits) * kBytes;
    each<(kBytes + 63) / 64>([&] [[gnu::always_inline]] (auto line) { __builtin_prefetch(at + 64 * line); });
  }

  [[gnu::always_inline]] static void unpack_unit(const Block& block, int unit, const Scales& s, __m512 inverse,
                                                 int16_t (*to)[32]) {
    Codes q;
    Format::codes(block, unit, q);
    __m512i scale[kHalves], zero[kHalves];
    each<kHalves>([&] [[gnu::always_inline]] (auto h) {
      const __m512 fine = _mm512_mul_ps(inverse, _mm512_set1_ps(1 << (15 - kShift)));
      scale[h] = twice(_mm512_cvtps_epi32(_mm512_mul_ps(s.scale[h], fine)));
      zero[h] = twice(_mm512_cvtps_epi32(_mm512_mul_ps(value_of_zero<Format>(s, h), inverse)));
    });
    const __m512i mask = _mm512_set1_epi16(((1 << Format::kTraits.bits) - 1) << kShift);
    each<8>([&] [[gnu::always_inline]] (auto p) {
      constexpr int kHalf = kHalves == 2 && p >= 4 ? 1 : 0;
      const auto store = [&] [[gnu::always_inline]] (int pair, __m512i code) {
        const __m512i value =
            _mm512_add_epi16(_mm512_mulhrs_epi16(_mm512_and_si512(code, mask), scale[kHalf]), zero[kHalf]);
        _mm512_store_si512(to[pair * kPanelGroups], value);
      };
      store(2 * p, shift<kShift>(q[p]));
      store(2 * p + 1, shift<kShift - 8>(q[p]));
    });
  }
};

// One group of 16-bit floats, through a scale from their largest magnitude.
template <typename Format>
struct FloatPanel {
  static int unpack(const std::byte* group, int64_t columns, int64_t chunk, int g, Panel& panel) {
    const auto* blocks = reinterpret_cast<const typename Format::Block*>(group) + chunk * kChunkUnits;
    const int64_t left = columns - chunk * kChunk;
    const int count = left < kChunk ? static_cast<int>(left) : kChunk;
    const auto weights = [&] [[gnu::always_inline]] (int c) {
      return c < count ? Format::widen(blocks[c / kUnitColumns].w[c % kUnitColumns]) : _mm512_setzero_ps();
    };
    __m512 bound = _mm512_setzero_ps();
    for (int c = 0; c < count; ++c) bound = _mm512_max_ps(bound, _mm512_abs_ps(weights(c)));
    const __m512 inverse = reciprocal_scale(bound);
    _mm512_store_ps(panel.scale[g], _mm512_mul_ps(bound, _mm512_set1_ps(1 / kLargestW)));
    const int pairs = (count + 1) / 2;
    for (int p = 0; p < pairs; ++p) {
      const __m512i even = _mm512_cvtps_epi32(_mm512_mul_ps(weights(2 * p), inverse));
      const __m512i odd = _mm512_cvtps_epi32(_mm512_mul_ps(weights(2 * p + 1), inverse));
      _mm512_store_si512(panel.q[p][g], _mm512_mask_blend_epi16(0xAAAAAAAA, even, _mm512_slli_epi32(odd, 16)));
    }
    return pairs;
  }
};

// out (+)= panel times kRows activation rows; the first chunk of the columns writes, later ones add. `next` comes after
// x, too far away for the machine's own prefetching.
template <int kRows, int kGroups>
[[gnu::noinline]] void multiply_tile(const Panel& panel, int pairs, const Activations& x, const Activations* next,
                                     int64_t chunk, float* out, int64_t stride) {
  constexpr int kAhead = sizeof(Activations) / kPairs;  // bytes
  __m512i sum[kRows][kGroups] = {};
  for (int p = 0; p < pairs; ++p) {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(next) + kAhead * p);
    __m512i w[kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) w[g] = _mm512_load_si512(panel.q[p][g]);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      int32_t pair;
      __builtin_memcpy(&pair, &x.q[i][2 * p], sizeof pair);
      const __m512i v = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) add_pairs(sum[i][g], w[g], v);
    }
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    const __m512 scale = _mm512_set1_ps(x.scale[i]);
    each<kGroups>([&] [[gnu::always_inline]] (auto g) {
      float* to = out + i * stride + 16 * g;
      const __m512 factor = _mm512_mul_ps(scale, _mm512_load_ps(panel.scale[g]));
      const __m512 value = _mm512_cvtepi32_ps(sum[i][g]);
      _mm512_storeu_ps(to,
                       chunk == 0 ? _mm512_mul_ps(value, factor) : _mm512_fmadd_ps(value, factor, _mm512_loadu_ps(to)));
    });
  });
}

template <int kGroups>
void multiply_panel(const GemmArgs& a, const Panel& panel, int pairs, int64_t chunk, float* out) {
  using Tile = void (*)(const Panel&, int, const Activations&, const Activations*, int64_t, float*, int64_t);
  static constexpr Tile kByRows[kTile] = {multiply_tile<1, kGroups>, multiply_tile<2, kGroups>,
                                          multiply_tile<3, kGroups>, multiply_tile<4, kGroups>,
                                          multiply_tile<5, kGroups>, multiply_tile<6, kGroups>};
  const int64_t chunks = chunks_of(a.columns);
  const Activations* x = reinterpret_cast<const Activations*>(a.x) + chunk;
  for (int64_t row = 0; row < a.rows; row += kTile, x += chunks) {
    const int64_t rows = a.rows - row < kTile ? a.rows - row : kTile;
    kByRows[rows - 1](panel, pairs, *x, x + chunks, chunk, out + row * a.out_stride, a.out_stride);
  }
}

template <typename Unpack>
void multiply(const GemmArgs& a) {
  using ByGroups = void (*)(const GemmArgs&, const Panel&, int, int64_t, float*);
  static constexpr ByGroups kByGroups[kPanelGroups] = {multiply_panel<1>, multiply_panel<2>, multiply_panel<3>,
                                                       multiply_panel<4>};
  auto& panel = *reinterpret_cast<Panel*>(a.scratch);
  for (int first = 0; first < a.groups; first += kPanelGroups) {
    const int count = a.groups - first < kPanelGroups ? a.groups - first : kPanelGroups;
    for (int64_t chunk = 0; chunk < chunks_of(a.columns); ++chunk) {
      int pairs = 0;
      for (int g = 0; g < count; ++g) {
        const std::byte* group = a.weights + static_cast<size_t>(first + g) * a.group_bytes;
        pairs = Unpack::unpack(group, a.columns, chunk, g, panel);
      }
      kByGroups[count - 1](a, panel, pairs, chunk, a.out + 16 * first);
    }
  }
}

}  // namespace

void install_gemm(KernelTable& table) {
  GemmKernels& gemm = table.gemm;
  gemm.min_width = 0;
  gemm.groups_at_once = kPanelGroups;
  gemm.packed_bytes = packed_bytes;
  gemm.scratch_bytes = scratch_bytes;
  gemm.pack = pack;
  for_each_format(
      [&]<typename Format>(IntWeight type) { gemm.multiply[static_cast<int>(type)] = multiply<IntPanel<Format>>; });
  gemm.multiply_float[static_cast<int>(FloatWeight::f16)] = multiply<FloatPanel<F16>>;
  gemm.multiply_float[static_cast<int>(FloatWeight::bf16)] = multiply<FloatPanel<Bf16>>;
}

}  // namespace nanomind::avx512
