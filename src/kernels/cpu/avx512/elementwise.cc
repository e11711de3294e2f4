// SPDX-License-Identifier: Apache-2.0
// Quantisation, normalisation and activation functions, 16 floats at a time with a masked end.
#include "kernels/cpu/avx512/exp.h"
#include "kernels/cpu/avx512/vectors.h"
#include "kernels/cpu/delta_step.h"
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

constexpr float kCodeMax = 127 * 256;

// 16 codes of 32 bits into the order of kColumnOrder: runs 0, 2, 1, 3, 4, 6, 5, 7 twice.
[[gnu::always_inline]] inline __m512i reorder(__m512i q) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15), q);
}

// Quantises half a unit and returns the sum of its codes.
[[gnu::always_inline]] inline int32_t quantize_half(__m512 x, __m512 scale, __m512 limit, int8_t* hi, int8_t* lo) {
  __m512 scaled = _mm512_div_ps(x, scale);
  // The second operand wins when the first is NaN.
  scaled = _mm512_max_ps(_mm512_min_ps(scaled, limit), _mm512_sub_ps(_mm512_setzero_ps(), limit));
  const __m512i q = _mm512_cvtps_epi32(scaled);
  const __m512i ordered = reorder(q);
  // q - lo is a multiple of 256; adding 128 first makes the shift round to that.
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(ordered, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lo), _mm512_cvtepi32_epi8(ordered));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(hi), _mm512_cvtepi32_epi8(high));
  return _mm512_reduce_add_epi32(q);
}

void quantize(const float* x, int64_t n, ActivationUnit* out) {
  for (int64_t c = 0; c < n; c += kUnitColumns, ++out) {
    const __m512 a = _mm512_maskz_loadu_ps(first_lanes(n - c), x + c);
    const __m512 b = _mm512_maskz_loadu_ps(first_lanes(n - c - 16), x + c + 16);
    float max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    if (!(max < __FLT_MAX__)) max = __FLT_MAX__;
    const float scale = max / kCodeMax;
    const __m512 limit = _mm512_set1_ps(scale == 0 ? 0.0f : kCodeMax);
    const __m512 divisor = _mm512_set1_ps(scale == 0 ? 1.0f : scale);
    out->scale = scale;
    out->sum[0] = quantize_half(a, divisor, limit, out->hi, out->lo);
    out->sum[1] = quantize_half(b, divisor, limit, out->hi + 16, out->lo + 16);
    out->scaled_sum = scale * static_cast<float>(out->sum[0] + out->sum[1]);
  }
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  __m512 squares[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t i = 0; i < n; i += 32) {
    const __m512 a = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
    const __m512 b = _mm512_maskz_loadu_ps(first_lanes(n - i - 16), x + i + 16);
    squares[0] = _mm512_fmadd_ps(a, a, squares[0]);
    squares[1] = _mm512_fmadd_ps(b, b, squares[1]);
  }
  const auto sum = static_cast<double>(_mm512_reduce_add_ps(_mm512_add_ps(squares[0], squares[1])));
  const double mean = sum / static_cast<double>(n) + static_cast<double>(eps);
  const __m512 factor = _mm512_set1_ps(static_cast<float>(1 / __builtin_sqrt(mean)));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), factor);
    _mm512_mask_storeu_ps(out + i, lanes, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, weight + i)));
  }
}

// g / (1 + exp(-u)) * up
[[gnu::always_inline]] inline __m512 gated(__m512 g, __m512 u, __m512 up) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp(_mm512_sub_ps(_mm512_setzero_ps(), u));
  return _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(one, e)), up);
}

void swiglu(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(lanes, gate + i);
    _mm512_mask_storeu_ps(out + i, lanes, gated(g, g, _mm512_maskz_loadu_ps(lanes, up + i)));
  }
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)).
void geglu(const float* gate, const float* up, int64_t n, float* out) {
  const __m512 two_root_two_over_pi = _mm512_set1_ps(1.5957691216057308f);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(lanes, gate + i);
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(g, g), g);
    const __m512 u = _mm512_mul_ps(two_root_two_over_pi, _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), g));
    _mm512_mask_storeu_ps(out + i, lanes, gated(g, u, _mm512_maskz_loadu_ps(lanes, up + i)));
  }
}

void to_half(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m256i halves = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(lanes, x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(out + i, lanes, halves);
  }
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

}  // namespace nanomind::avx512
