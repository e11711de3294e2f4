// SPDX-License-Identifier: Apache-2.0
// Attention over one block of 64 keys: keys are widened once for up to three query rows, sums stay in registers.
#include "kernels/cpu/avx2/exp.h"
#include "kernels/cpu/avx2/vectors.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

constexpr int kTileRows = 3;
constexpr int kTileVectors = 4;  // 12 sums, a vector of keys and a query

// Scores of 8 * kTileVectors keys.
template <typename T, int kRows>
void qk_tile(const float* q, int64_t q_stride, const T* k, int d, float* scores) {
  __m256 sum[kRows][kTileVectors];
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kTileVectors>([&] [[gnu::always_inline]] (auto j) { sum[i][j] = _mm256_setzero_ps(); });
  });
  for (int c = 0; c < d; ++c, k += kKvBlock) {
    __m256 x[kRows];
    each<kRows>([&] [[gnu::always_inline]] (auto i) { x[i] = _mm256_set1_ps(q[i * q_stride + c]); });
    each<kTileVectors>([&] [[gnu::always_inline]] (auto j) {
      const __m256 keys = load_floats(k + 8 * j);
      each<kRows>([&] [[gnu::always_inline]] (auto i) { sum[i][j] = _mm256_fmadd_ps(keys, x[i], sum[i][j]); });
    });
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kTileVectors>(
        [&] [[gnu::always_inline]] (auto j) { _mm256_storeu_ps(scores + i * kKvBlock + 8 * j, sum[i][j]); });
  });
}

template <typename T>
void qk(const float* q, int64_t q_stride, int m, const T* k, int d, float* scores) {
  using Tile = void (*)(const float*, int64_t, const T*, int, float*);
  static constexpr Tile kTiles[kTileRows] = {qk_tile<T, 1>, qk_tile<T, 2>, qk_tile<T, 3>};
  for (int i = 0; i < m; i += kTileRows) {
    const int rows = m - i < kTileRows ? m - i : kTileRows;
    for (int j = 0; j < kKvBlock; j += 8 * kTileVectors) {
      kTiles[rows - 1](q + i * q_stride, q_stride, k + j, d, scores + i * kKvBlock + j);
    }
  }
}

float softmax_block(float* scores, int first, int last, float scale, float* max, float* sum) {
  const float old_max = *max;
  const __m256 nothing = _mm256_set1_ps(-__builtin_inff());
  __m256 top = nothing;
  for (int j = 0; j < kKvBlock; j += 8) {
    const __m256 lanes = _mm256_castsi256_ps(_mm256_andnot_si256(first_lanes(first - j), first_lanes(last - j)));
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(scale));
    const __m256 s = _mm256_blendv_ps(nothing, scaled, lanes);
    _mm256_storeu_ps(scores + j, s);
    top = _mm256_max_ps(top, s);
  }
  const float block_max = max_lanes(top);
  const float new_max = block_max > old_max ? block_max : old_max;

  __m256 total = _mm256_setzero_ps();
  for (int j = 0; j < kKvBlock; j += 8) {
    const __m256 e = exp(_mm256_sub_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(new_max)));
    _mm256_storeu_ps(scores + j, e);
    total = _mm256_add_ps(total, e);
  }
  const float correction = _mm256_cvtss_f32(exp(_mm256_set1_ps(old_max - new_max)));
  *max = new_max;
  *sum = *sum * correction + sum_lanes(total);
  return correction;
}

// kRows rows of out, columns c..c + 8 * kVectors - 1.
template <int kRows, int kVectors, typename T>
[[gnu::noinline]] void pv_tile(const float* p, const T* v, int first, int last, int d, int c, const float* correction,
                               float* out, int64_t out_stride) {
  __m256 sum[kRows][kVectors];
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kVectors>([&] [[gnu::always_inline]] (auto j) {
      sum[i][j] = correction[i] == 0
                      ? _mm256_setzero_ps()
                      : _mm256_mul_ps(_mm256_set1_ps(correction[i]), _mm256_loadu_ps(out + i * out_stride + c + 8 * j));
    });
  });
  for (int key = first; key < last; ++key) {
    const T* row = v + key * d + c;
    __m256 weight[kRows];
    each<kRows>([&] [[gnu::always_inline]] (auto i) { weight[i] = _mm256_set1_ps(p[i * kKvBlock + key]); });
    each<kVectors>([&] [[gnu::always_inline]] (auto j) {
      const __m256 values = load_floats(row + 8 * j);
      each<kRows>([&] [[gnu::always_inline]] (auto i) { sum[i][j] = _mm256_fmadd_ps(values, weight[i], sum[i][j]); });
    });
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kVectors>(
        [&] [[gnu::always_inline]] (auto j) { _mm256_storeu_ps(out + i * out_stride + c + 8 * j, sum[i][j]); });
  });
}

template <typename T, int kRows>
void pv_rows(const float* p, const T* v, int first, int last, int d, const float* correction, float* out,
             int64_t out_stride) {
  constexpr int kVectors = kRows == 1 ? 8 : kTileVectors;
  int c = 0;
  for (; c + 8 * kVectors <= d; c += 8 * kVectors) {
    pv_tile<kRows, kVectors>(p, v, first, last, d, c, correction, out, out_stride);
  }
  for (; c < d; c += 8) pv_tile<kRows, 1>(p, v, first, last, d, c, correction, out, out_stride);
}

template <typename T>
void pv(const float* p, int m, const T* v, int first, int last, int d, const float* correction, float* out,
        int64_t out_stride) {
  using Rows = void (*)(const float*, const T*, int, int, int, const float*, float*, int64_t);
  static constexpr Rows kRows[kTileRows] = {pv_rows<T, 1>, pv_rows<T, 2>, pv_rows<T, 3>};
  for (int i = 0; i < m; i += kTileRows) {
    const int rows = m - i < kTileRows ? m - i : kTileRows;
    kRows[rows - 1](p + i * kKvBlock, v, first, last, d, correction + i, out + i * out_stride, out_stride);
  }
}

}  // namespace

void install_attention(KernelTable& table) {
  table.qk = qk<uint16_t>;
  table.qk_float = qk<float>;
  table.softmax_block = softmax_block;
  table.pv = pv<uint16_t>;
  table.pv_float = pv<float>;
}

}  // namespace nanomind::avx2
