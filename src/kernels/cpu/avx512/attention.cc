// SPDX-License-Identifier: Apache-2.0
// Attention over one block of 64 keys: keys are widened once for several query rows, scores and outputs stay in
// registers.
#include "kernels/cpu/avx512/exp.h"
#include "kernels/cpu/avx512/vectors.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

constexpr int kKeyVectors = kKvBlock / 16;
constexpr int kTileRows = 6;  // 24 sums and 4 vectors of keys

template <typename T, int kRows>
void qk_tile(const float* q, int64_t q_stride, const T* k, int d, float* scores) {
  __m512 sum[kRows][kKeyVectors];
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kKeyVectors>([&] [[gnu::always_inline]] (auto j) { sum[i][j] = _mm512_setzero_ps(); });
  });
  for (int c = 0; c < d; ++c, k += kKvBlock) {
    __m512 keys[kKeyVectors];
    each<kKeyVectors>([&] [[gnu::always_inline]] (auto j) { keys[j] = load_floats(k + 16 * j); });
    each<kRows>([&] [[gnu::always_inline]] (auto i) {
      const __m512 x = _mm512_set1_ps(q[i * q_stride + c]);
      each<kKeyVectors>([&] [[gnu::always_inline]] (auto j) { sum[i][j] = _mm512_fmadd_ps(keys[j], x, sum[i][j]); });
    });
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kKeyVectors>(
        [&] [[gnu::always_inline]] (auto j) { _mm512_storeu_ps(scores + i * kKvBlock + 16 * j, sum[i][j]); });
  });
}

template <typename T>
void qk(const float* q, int64_t q_stride, int m, const T* k, int d, float* scores) {
  using Tile = void (*)(const float*, int64_t, const T*, int, float*);
  static constexpr Tile kTiles[kTileRows] = {qk_tile<T, 1>, qk_tile<T, 2>, qk_tile<T, 3>,
                                             qk_tile<T, 4>, qk_tile<T, 5>, qk_tile<T, 6>};
  for (int i = 0; i < m; i += kTileRows) {
    const int rows = m - i < kTileRows ? m - i : kTileRows;
    kTiles[rows - 1](q + i * q_stride, q_stride, k, d, scores + i * kKvBlock);
  }
}

float softmax_block(float* scores, int first, int last, float scale, float* max, float* sum) {
  const float old_max = *max;
  const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
  __m512 s[kKeyVectors];
  each<kKeyVectors>([&] [[gnu::always_inline]] (auto j) {
    const __mmask16 lanes = first_lanes(last - 16 * j) & ~first_lanes(first - 16 * j);
    s[j] = _mm512_mask_mul_ps(nothing, lanes, _mm512_loadu_ps(scores + 16 * j), _mm512_set1_ps(scale));
  });
  const __m512 top = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
  const float block_max = _mm512_reduce_max_ps(top);
  const float new_max = block_max > old_max ? block_max : old_max;

  __m512 total = _mm512_setzero_ps();
  each<kKeyVectors>([&] [[gnu::always_inline]] (auto j) {
    // Masked, because exp clamps: minus infinity has to become exactly 0.
    const __mmask16 lanes = _mm512_cmp_ps_mask(s[j], nothing, _CMP_NEQ_UQ);
    const __m512 e = _mm512_maskz_mov_ps(lanes, exp(_mm512_sub_ps(s[j], _mm512_set1_ps(new_max))));
    _mm512_storeu_ps(scores + 16 * j, e);
    total = _mm512_add_ps(total, e);
  });
  const __m512 change = exp(_mm512_set1_ps(old_max - new_max));
  const float correction = old_max == -__builtin_inff() ? 0.0f : _mm512_cvtss_f32(change);
  *max = new_max;
  *sum = *sum * correction + _mm512_reduce_add_ps(total);
  return correction;
}

// kRows rows of out, columns c..c + 16 * kVectors - 1, of which the last vector has `lanes`.
template <int kRows, int kVectors, typename T>
[[gnu::noinline]] void pv_tile(const float* p, const T* v, int first, int last, int d, int c, __mmask16 lanes,
                               const float* correction, float* out, int64_t out_stride) {
  __m512 sum[kRows][kVectors];
  const auto mask = [&] [[gnu::always_inline]] (int j) {
    return j == kVectors - 1 ? lanes : static_cast<__mmask16>(0xFFFF);
  };
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kVectors>([&] [[gnu::always_inline]] (auto j) {
      sum[i][j] = correction[i] == 0 ? _mm512_setzero_ps()
                                     : _mm512_mul_ps(_mm512_set1_ps(correction[i]),
                                                     _mm512_maskz_loadu_ps(mask(j), out + i * out_stride + c + 16 * j));
    });
  });
  for (int key = first; key < last; ++key) {
    const T* row = v + key * d + c;
    __m512 values[kVectors];
    each<kVectors>([&] [[gnu::always_inline]] (auto j) { values[j] = load_floats(mask(j), row + 16 * j); });
    each<kRows>([&] [[gnu::always_inline]] (auto i) {
      const __m512 weight = _mm512_set1_ps(p[i * kKvBlock + key]);
      each<kVectors>(
          [&] [[gnu::always_inline]] (auto j) { sum[i][j] = _mm512_fmadd_ps(values[j], weight, sum[i][j]); });
    });
  }
  each<kRows>([&] [[gnu::always_inline]] (auto i) {
    each<kVectors>([&] [[gnu::always_inline]] (auto j) {
      _mm512_mask_storeu_ps(out + i * out_stride + c + 16 * j, mask(j), sum[i][j]);
    });
  });
}

template <typename T, int kRows>
void pv_rows(const float* p, const T* v, int first, int last, int d, const float* correction, float* out,
             int64_t out_stride) {
  constexpr int kVectors = kRows <= 2 ? 8 : 4;
  int c = 0;
  for (; c + 16 * kVectors <= d; c += 16 * kVectors) {
    pv_tile<kRows, kVectors>(p, v, first, last, d, c, 0xFFFF, correction, out, out_stride);
  }
  for (; c < d; c += 16) {
    pv_tile<kRows, 1>(p, v, first, last, d, c, first_lanes(d - c), correction, out, out_stride);
  }
}

template <typename T>
void pv(const float* p, int m, const T* v, int first, int last, int d, const float* correction, float* out,
        int64_t out_stride) {
  using Rows = void (*)(const float*, const T*, int, int, int, const float*, float*, int64_t);
  static constexpr Rows kRows[kTileRows] = {pv_rows<T, 1>, pv_rows<T, 2>, pv_rows<T, 3>,
                                            pv_rows<T, 4>, pv_rows<T, 5>, pv_rows<T, 6>};
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

}  // namespace nanomind::avx512
