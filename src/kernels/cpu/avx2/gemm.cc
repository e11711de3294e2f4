// SPDX-License-Identifier: Apache-2.0
// Products of many rows in 16-bit fixed point. For each 128 columns and a few row groups of weights, both operands
// become integers with one scale per row (128 products fit an int32), the weights as a panel in the first-level cache,
// where VPMADDWD multiplies pairs of columns. All integer formats and float weights meet in the same panel.
#include "kernels/cpu/avx2/all_formats.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

constexpr int kChunk = 128;  // columns of a panel
constexpr int kChunkUnits = kChunk / kUnitColumns;
constexpr int kUnitPairs = kUnitColumns / 2;
constexpr int kPanelGroups = 4;
constexpr int kTile = 6;  // activation rows: with 16 weight rows 12 sums, which leaves 4 registers

// An int32 holds 128 products because |w| < 2^13 and the |x| of a chunk add up to less than 2^18; so much is left for
// roundings: 3 for w (scale, code, min), 64 for the sum.
constexpr float kLargestW = (1 << 13) - 4;
constexpr float kLargestX = 32766, kLargestSum = (1 << 18) - 65;

// kTile activation rows of a chunk. Packed activations are [tile][chunk] of these.
struct alignas(64) Activations {
  int16_t q[kTile][kChunk];
  float scale[kTile];
};

// A row group of a chunk: pair p is 16 rows x columns 2p and 2p + 1.
struct alignas(64) GroupPanel {
  int16_t q[kChunk / 2][kGroupRows][2];
  float scale[kGroupRows];
};

constexpr int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

int64_t chunks_of(int64_t columns) { return divide_up(columns, kChunk); }

size_t packed_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(divide_up(rows, kTile) * chunks_of(columns)) * sizeof(Activations);
}

size_t scratch_bytes(int64_t) { return kPanelGroups * sizeof(GroupPanel); }

[[gnu::always_inline]] inline __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

// Below this a reciprocal could be infinite; such values become zeros.
constexpr float kSmallest = 1e-35f;

// n <= kChunk floats to fixed point, zeros behind them; returns the scale.
float quantize_chunk(const float* x, int64_t n, int16_t* q) {
  constexpr int kVectors = kChunk / 8;
  __m256 v[kVectors], largest = _mm256_setzero_ps(), sum = _mm256_setzero_ps();
  for (int i = 0; i < kVectors; ++i) {
    v[i] = n >= 8 * (i + 1) ? _mm256_loadu_ps(x + 8 * i) : _mm256_maskload_ps(x + 8 * i, first_lanes(n - 8 * i));
    largest = _mm256_max_ps(largest, magnitude(v[i]));
    sum = _mm256_add_ps(sum, magnitude(v[i]));
  }
  const float by_largest = max_lanes(largest) / kLargestX, by_sum = sum_lanes(sum) / kLargestSum;
  const float scale = by_sum > by_largest ? by_sum : by_largest;
  const __m256 inverse = _mm256_set1_ps(scale > kSmallest ? 1 / scale : 0);
  for (int i = 0; i < kVectors; i += 2) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(v[i + 1], inverse));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0b11011000);
    _mm256_store_si256(reinterpret_cast<__m256i*>(q + 8 * i), packed);
  }
  return scale;
}

void pack(const float* x, int64_t begin, int64_t n, int64_t columns, int64_t row, std::byte* packed) {
  auto* tile = reinterpret_cast<Activations*>(packed) + row / kTile * chunks_of(columns) + begin / kChunk;
  for (int64_t c = 0; c < n; c += kChunk, ++tile) {
    const int64_t count = n - c < kChunk ? n - c : kChunk;
    tile->scale[row % kTile] = quantize_chunk(x + c, count, tile->q[row % kTile]);
  }
}

// What turns weights of magnitude up to `bound` into fixed point, 0 where there are none.
[[gnu::always_inline]] inline __m256 inverse_scale(__m256 bound) {
  const __m256 some = _mm256_cmp_ps(bound, _mm256_set1_ps(kSmallest), _CMP_GT_OQ);
  return _mm256_and_ps(some, _mm256_div_ps(_mm256_set1_ps(kLargestW), bound));
}

// Pairs of the lower halves of 8 dwords: of each with itself, or of two vectors.
[[gnu::always_inline]] inline __m256i pairs(__m256i even, __m256i odd) {
  return _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xAA);
}
[[gnu::always_inline]] inline __m256i round_twice(__m256 v) {
  const __m256i rounded = _mm256_cvtps_epi32(v);
  return pairs(rounded, rounded);
}

[[gnu::always_inline]] inline void store_pair(__m256i v, int row, int16_t (*to)[2]) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to + row), v);
}

// Integer weights. A code of 16 bits is 2^kShift times the format's, in the upper byte and below, so that mulhrs with
// 2^(15 - kShift) * scale gives the product rounded; that factor fits 16 bits for all scales that the bound allows.
template <typename Format>
struct IntPanel {
  using Block = typename Format::Block;
  static constexpr Traits kTraits = Format::kTraits;
  static constexpr int kUnits = Block::kColumns / kUnitColumns;
  static constexpr int kLeast = (kTraits.min ? 15 : 14) - kTraits.bits;
  static constexpr int kShift = kLeast > 8 ? kLeast : 8, kExtra = kShift - 8;

  // Returns how many pairs of columns there are.
  static int unpack(const std::byte* group, int64_t columns, int64_t chunk, GroupPanel& panel) {
    const auto* blocks = reinterpret_cast<const Block*>(group);
    const int64_t first = chunk * kChunkUnits;
    const int64_t left = divide_up(columns, Block::kColumns) * kUnits - first;
    const int count = left < kChunkUnits ? static_cast<int>(left) : kChunkUnits;
    Scales scales[kChunkUnits][2];
    __m256 bound[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    typename Format::Prepared prepared;
    for (int u = 0; u < count; ++u) {
      const Block& block = blocks[(first + u) / kUnits];
      const int unit = static_cast<int>((first + u) % kUnits);
      if (u == 0 || unit == 0) Format::prepare(block, prepared);
      each<2>([&] [[gnu::always_inline]] (auto half) {
        Format::scales(block, prepared, unit, 8 * half, scales[u][half]);
        bound[half] = _mm256_max_ps(bound[half], largest_weight(scales[u][half]));
      });
    }
    for (int half = 0; half < 2; ++half) {
      const __m256 inverse = inverse_scale(bound[half]);
      _mm256_store_ps(panel.scale + 8 * half, _mm256_mul_ps(bound[half], _mm256_set1_ps(1 / kLargestW)));
#pragma GCC unroll 1
      for (int u = 0; u < count; ++u) {
        const Block& block = blocks[(first + u) / kUnits];
        const int unit = static_cast<int>((first + u) % kUnits);
        prefetch(block, unit, half);
        unpack_unit(block, unit, 8 * half, scales[u][half], inverse, panel.q + kUnitPairs * u);
      }
    }
    return count * kUnitPairs;
  }

 private:
  // The largest magnitude that the scales allow.
  [[gnu::always_inline]] static __m256 largest_weight(const Scales& s) {
    const auto of_half = [&] [[gnu::always_inline]] (int h) {
      if constexpr (kTraits.min) {
        const __m256 top = _mm256_fmadd_ps(s.scale[h], _mm256_set1_ps((1 << kTraits.bits) - 1), s.min[h]);
        return _mm256_max_ps(magnitude(s.min[h]), magnitude(top));
      } else {
        return _mm256_mul_ps(magnitude(s.scale[h]), _mm256_set1_ps(kTraits.offset));
      }
    };
    return kTraits.halves == 2 ? _mm256_max_ps(of_half(0), of_half(1)) : of_half(0);
  }

  // One half of the same unit of the next chunk.
  [[gnu::always_inline]] static void prefetch(const Block& block, int unit, int half) {
    constexpr int kBytes = static_cast<int>(sizeof(Block)) / kUnits, kLines = (kBytes + 127) / 128;
    const std::byte* at = reinterpret_cast<const std::byte*>(&block) + (unit + kChunkUnits) * kBytes;
    each<kLines>([&] [[gnu::always_inline]] (auto line) { __builtin_prefetch(at + 64 * (kLines * half + line)); });
  }

  [[gnu::always_inline]] static void unpack_unit(const Block& block, int unit, int row, const Scales& s, __m256 inverse,
                                                 int16_t (*to)[kGroupRows][2]) {
    Codes q;
    Format::codes(block, unit, row, q);
    const __m256 factor = _mm256_mul_ps(inverse, _mm256_set1_ps(1 << (15 - kShift)));
    __m256i scale[kTraits.halves], min[kTraits.halves];
    each<kTraits.halves>([&] [[gnu::always_inline]] (auto h) {
      scale[h] = round_twice(_mm256_mul_ps(s.scale[h], factor));
      if constexpr (kTraits.min) min[h] = round_twice(_mm256_mul_ps(s.min[h], inverse));
    });
    const auto store = [&] [[gnu::always_inline]] (int pair, __m256i code) {
      const int half = kTraits.halves == 2 && pair >= kUnitPairs / 2 ? 1 : 0;
      __m256i value = _mm256_mulhrs_epi16(code, scale[half]);
      if constexpr (kTraits.min) value = _mm256_add_epi16(value, min[half]);
      store_pair(value, row, to[pair]);
    };
    each<8>([&] [[gnu::always_inline]] (auto p) {
      __m256i code = shift<kExtra>(q[p]);
      if constexpr (!kTraits.min) {
        code = _mm256_sub_epi8(code, _mm256_set1_epi8(static_cast<int8_t>(kTraits.offset << kExtra)));
      }
      store(2 * p, _mm256_slli_epi16(code, 8));
      store(2 * p + 1, _mm256_and_si256(code, _mm256_set1_epi16(static_cast<int16_t>(0xFF00))));
    });
  }
};

// Float weights, by their largest magnitude.
template <typename Format>
struct FloatPanel {
  static int unpack(const std::byte* group, int64_t columns, int64_t chunk, GroupPanel& panel) {
    const auto* blocks = reinterpret_cast<const typename Format::Block*>(group) + chunk * kChunkUnits;
    const int64_t left = divide_up(columns, kUnitColumns) - chunk * kChunkUnits;
    const int count = left < kChunkUnits ? static_cast<int>(left) : kChunkUnits;
    __m256 bound[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, inverse[2];
    for (int u = 0; u < count; ++u) {
      for (const auto& column : blocks[u].w) {
        each<2>([&] [[gnu::always_inline]] (auto half) {
          bound[half] = _mm256_max_ps(bound[half], magnitude(Format::widen(column + 8 * half)));
        });
      }
    }
    each<2>([&] [[gnu::always_inline]] (auto half) {
      inverse[half] = inverse_scale(bound[half]);
      _mm256_store_ps(panel.scale + 8 * half, _mm256_mul_ps(bound[half], _mm256_set1_ps(1 / kLargestW)));
    });
    for (int u = 0; u < count; ++u) {
      for (int p = 0; p < kUnitPairs; ++p) {
        const auto* columns_of_pair = blocks[u].w + 2 * p;
        each<2>([&] [[gnu::always_inline]] (auto half) {
          const auto fixed = [&] [[gnu::always_inline]] (int c) {
            return _mm256_cvtps_epi32(_mm256_mul_ps(Format::widen(columns_of_pair[c] + 8 * half), inverse[half]));
          };
          store_pair(pairs(fixed(0), fixed(1)), 8 * half, panel.q[kUnitPairs * u + p]);
        });
      }
    }
    return count * kUnitPairs;
  }
};

// sum += w . x over pairs. As intrinsics, compilers make the products of several rows before they add them, and have no
// registers left for the sums.
[[gnu::always_inline]] inline void add_products(__m256i w, __m256i x, __m256i& sum) {
  __m256i products;
  __asm__ volatile("vpmaddwd %[x], %[w], %[products]\n vpaddd %[products], %[sum], %[sum]"
                   : [sum] "+x"(sum), [products] "=x"(products)
                   : [w] "x"(w), [x] "x"(x));
}

// out (+)= panel times kRows activation rows; the first chunk of the columns writes, later ones add.
template <int kRows>
[[gnu::noinline]] void multiply_tile(const GroupPanel& panel, int pair_count, const Activations& x, int64_t chunk,
                                     float* out, int64_t stride) {
  __m256i sum[kRows][2];
  each<kRows>([&] [[gnu::always_inline]] (auto i) { sum[i][0] = sum[i][1] = _mm256_setzero_si256(); });
  for (int p = 0; p < pair_count; p += 2) {
    each<2>([&] [[gnu::always_inline]] (auto next) {
      const auto* w = reinterpret_cast<const __m256i*>(panel.q[p + next]);
      const __m256i low = _mm256_load_si256(w), high = _mm256_load_si256(w + 1);
      each<kRows>([&] [[gnu::always_inline]] (auto i) {
        int32_t pair;
        __builtin_memcpy(&pair, &x.q[i][2 * (p + next)], sizeof pair);
        const __m256i x_pair = _mm256_set1_epi32(pair);
        add_products(low, x_pair, sum[i][0]);
        add_products(high, x_pair, sum[i][1]);
      });
    });
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    const __m256 scale = _mm256_set1_ps(x.scale[i]);
    each<2>([&] [[gnu::always_inline]] (auto half) {
      float* to = out + i * stride + 8 * half;
      const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][half]), _mm256_load_ps(panel.scale + 8 * half));
      const __m256 before = chunk == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(to);
      _mm256_storeu_ps(to, _mm256_fmadd_ps(value, scale, before));
    });
  });
}

template <typename Unpack>
void multiply(const GemmArgs& a) {
  using Tile = void (*)(const GroupPanel&, int, const Activations&, int64_t, float*, int64_t);
  static constexpr Tile kByRows[kTile] = {multiply_tile<1>, multiply_tile<2>, multiply_tile<3>,
                                          multiply_tile<4>, multiply_tile<5>, multiply_tile<6>};
  auto* panel = reinterpret_cast<GroupPanel*>(a.scratch);
  const int64_t chunks = chunks_of(a.columns);
  for (int first = 0; first < a.groups; first += kPanelGroups) {
    const int count = a.groups - first < kPanelGroups ? a.groups - first : kPanelGroups;
    const std::byte* weights = a.weights + static_cast<size_t>(first) * a.group_bytes;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      int pair_count = 0;
      for (int g = 0; g < count; ++g) {
        pair_count = Unpack::unpack(weights + static_cast<size_t>(g) * a.group_bytes, a.columns, chunk, panel[g]);
      }
      const auto* x = reinterpret_cast<const Activations*>(a.x) + chunk;
      float* out = a.out + kGroupRows * first;
      for (int64_t left = a.rows; left > 0; left -= kTile, x += chunks, out += kTile * a.out_stride) {
        const Tile tile = kByRows[left < kTile ? left - 1 : kTile - 1];
        for (int g = 0; g < count; ++g) tile(panel[g], pair_count, *x, chunk, out + kGroupRows * g, a.out_stride);
      }
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

}  // namespace nanomind::avx2
