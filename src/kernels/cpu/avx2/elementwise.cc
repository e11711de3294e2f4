// SPDX-License-Identifier: Apache-2.0
// Quantisation, normalisation and activation functions, 8 floats at a time with a masked end.
#include "kernels/cpu/avx2/exp.h"
#include "kernels/cpu/avx2/vectors.h"
#include "kernels/cpu/delta_step.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

constexpr float kCodeMax = 127 * 256;

[[gnu::always_inline]] inline __m256 load(const float* x, int64_t i, int64_t n) {
  return _mm256_maskload_ps(x + i, first_lanes(n - i));
}
void store(float* out, int64_t i, int64_t n, __m256 v) { _mm256_maskstore_ps(out + i, first_lanes(n - i), v); }

// Eight int32 that fit in bytes, as bytes.
[[gnu::always_inline]] inline __m128i narrow(__m256i v) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return _mm_packs_epi16(words, words);
}

// Quantises a run of 8 in the order of kColumnOrder and returns its codes.
[[gnu::always_inline]] inline __m256i quantize_run(__m256 x, __m256 scale, __m256 limit, int8_t* hi, int8_t* lo) {
  __m256 scaled = _mm256_div_ps(x, scale);
  // The second operand wins when the first is NaN.
  scaled = _mm256_max_ps(_mm256_min_ps(scaled, limit), _mm256_sub_ps(_mm256_setzero_ps(), limit));
  const __m256i q = _mm256_cvtps_epi32(scaled);
  const __m256i ordered = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7));
  // q - lo is a multiple of 256; adding 128 first makes the shift round to that.
  const __m256i high = _mm256_srai_epi32(_mm256_add_epi32(ordered, _mm256_set1_epi32(128)), 8);
  const __m256i low = _mm256_sub_epi32(ordered, _mm256_slli_epi32(high, 8));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(hi), narrow(high));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(lo), narrow(low));
  return q;
}

[[gnu::always_inline]] inline int32_t sum_codes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
  return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 1);
}

void quantize(const float* x, int64_t n, ActivationUnit* out) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  for (int64_t c = 0; c < n; c += kUnitColumns, ++out) {
    __m256 v[4], top = _mm256_setzero_ps();
    each<4>([&] [[gnu::always_inline]] (auto i) {
      v[i] = load(x, c + 8 * i, n);
      top = _mm256_max_ps(top, _mm256_and_ps(v[i], magnitude));
    });
    float max = max_lanes(top);
    if (!(max < __FLT_MAX__)) max = __FLT_MAX__;
    const float scale = max / kCodeMax;
    const __m256 limit = _mm256_set1_ps(scale == 0 ? 0.0f : kCodeMax);
    const __m256 divisor = _mm256_set1_ps(scale == 0 ? 1.0f : scale);
    __m256i q[4];
    each<4>([&] [[gnu::always_inline]] (auto i) {
      q[i] = quantize_run(v[i], divisor, limit, out->hi + 8 * i, out->lo + 8 * i);
    });
    out->scale = scale;
    out->sum[0] = sum_codes(_mm256_add_epi32(q[0], q[1]));
    out->sum[1] = sum_codes(_mm256_add_epi32(q[2], q[3]));
    out->scaled_sum = scale * static_cast<float>(out->sum[0] + out->sum[1]);
  }
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  __m256 squares[4];
  each<4>([&] [[gnu::always_inline]] (auto k) { squares[k] = _mm256_setzero_ps(); });
  for (int64_t i = 0; i < n; i += 32) {
    each<4>([&] [[gnu::always_inline]] (auto k) {
      const __m256 v = load(x, i + 8 * k, n);
      squares[k] = _mm256_fmadd_ps(v, v, squares[k]);
    });
  }
  const __m256 sum = _mm256_add_ps(_mm256_add_ps(squares[0], squares[1]), _mm256_add_ps(squares[2], squares[3]));
  const double mean = static_cast<double>(sum_lanes(sum)) / static_cast<double>(n) + static_cast<double>(eps);
  const __m256 factor = _mm256_set1_ps(static_cast<float>(1 / __builtin_sqrt(mean)));
  for (int64_t i = 0; i < n; i += 8) {
    store(out, i, n, _mm256_mul_ps(_mm256_mul_ps(load(x, i, n), factor), load(weight, i, n)));
  }
}

// g / (1 + exp(-u)) * up
[[gnu::always_inline]] inline __m256 gated(__m256 g, __m256 u, __m256 up) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 e = exp(_mm256_sub_ps(_mm256_setzero_ps(), u));
  return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(one, e)), up);
}

void swiglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 g = load(gate, i, n);
    store(out, i, n, gated(g, g, load(up, i, n)));
  }
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)).
void geglu(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 two_root_two_over_pi = _mm256_set1_ps(1.5957691216057308f);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 g = load(gate, i, n);
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
    const __m256 u = _mm256_mul_ps(two_root_two_over_pi, _mm256_fmadd_ps(cube, _mm256_set1_ps(0.044715f), g));
    store(out, i, n, gated(g, u, load(up, i, n)));
  }
}

void to_half(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
  if (i == n) return;
  alignas(16) uint16_t rest[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(rest), _mm256_cvtps_ph(load(x, i, n), _MM_FROUND_TO_NEAREST_INT));
  for (int j = 0; i + j < n; ++j) out[i + j] = rest[j];
}

}  // namespace

void install_elementwise(KernelTable& table) {
  table.delta_step = delta_step;
  table.quantize = quantize;
  table.rms_norm = rms_norm;
  table.swiglu = swiglu;
  table.geglu = geglu;
  table.to_half = to_half;
}

}  // namespace nanomind::avx2
