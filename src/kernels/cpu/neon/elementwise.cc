// SPDX-License-Identifier: Apache-2.0
// Quantisation, norm, gated activations and conversion to half for the AArch64 baseline.
#include <arm_neon.h>

#include "kernels/cpu/delta_step.h"
#include "kernels/cpu/neon/exp.h"
#include "kernels/cpu/table.h"

namespace nanomind {
namespace {

// Calls f(i, count) for four elements at a time; the last count may be less.
template <class F>
inline void for_quads(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) f(i, 4);
  if (i < n) f(i, static_cast<int>(n - i));
}

inline float32x4_t load(const float* x, int count) {
  if (count == 4) return vld1q_f32(x);
  float four[4] = {};
  for (int i = 0; i < count; ++i) four[i] = x[i];
  return vld1q_f32(four);
}

inline void store(float* out, float32x4_t v, int count) {
  if (count == 4) return vst1q_f32(out, v);
  float four[4];
  vst1q_f32(four, v);
  for (int i = 0; i < count; ++i) out[i] = four[i];
}

// kColumnOrder for two runs.
constexpr uint8_t kOrder[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};

void quantize_unit(const float* x, uint8x16_t order, ActivationUnit& out) {
  constexpr float kLargest = 127 * 256;
  float32x4_t v[8];
  for (int i = 0; i < 8; ++i) v[i] = vld1q_f32(x + 4 * i);
  float32x4_t top = vdupq_n_f32(0.0f);
  for (int i = 0; i < 8; ++i) top = vmaxnmq_f32(top, vabsq_f32(v[i]));
  const float scale = vmaxvq_f32(vminnmq_f32(top, vdupq_n_f32(__FLT_MAX__))) / kLargest;
  // An all-zero unit divides by one; a scale so small that it has lost bits could round a quotient out of range.
  const float32x4_t divisor = vdupq_n_f32(scale == 0.0f ? 1.0f : scale);
  const int32x4_t limit = vdupq_n_s32(127 * 256);
  int16x8_t q[4];
  for (int i = 0; i < 4; ++i) {
    int32x4_t pair[2];
    for (int k = 0; k < 2; ++k) {
      pair[k] = vcvtnq_s32_f32(vdivq_f32(v[2 * i + k], divisor));
      pair[k] = vmaxq_s32(vminq_s32(pair[k], limit), vnegq_s32(limit));
    }
    q[i] = vcombine_s16(vmovn_s32(pair[0]), vmovn_s32(pair[1]));
  }
  for (int half = 0; half < 2; ++half) {
    const int16x8_t a = q[2 * half], b = q[2 * half + 1];
    // q = 256 * hi + lo with a signed low byte, so hi is q / 256 rounded.
    const int8x16_t hi = vcombine_s8(vrshrn_n_s16(a, 8), vrshrn_n_s16(b, 8));
    const int8x16_t lo = vcombine_s8(vmovn_s16(a), vmovn_s16(b));
    vst1q_s8(out.hi + 16 * half, vqtbl1q_s8(hi, order));
    vst1q_s8(out.lo + 16 * half, vqtbl1q_s8(lo, order));
    out.sum[half] = vaddlvq_s16(a) + vaddlvq_s16(b);
  }
  out.scale = scale;
  out.scaled_sum = scale * static_cast<float>(out.sum[0] + out.sum[1]);
}

void quantize(const float* x, int64_t n, ActivationUnit* out) {
  const uint8x16_t order = vld1q_u8(kOrder);
  int64_t c = 0;
  for (; c + kUnitColumns <= n; c += kUnitColumns) quantize_unit(x + c, order, *out++);
  if (c < n) {
    float last[kUnitColumns] = {};
    for (int64_t i = c; i < n; ++i) last[i - c] = x[i];
    quantize_unit(last, order, *out);
  }
}

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  float32x4_t sums[4];
  for (auto& sum : sums) sum = vdupq_n_f32(0.0f);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int k = 0; k < 4; ++k) {
      const float32x4_t v = vld1q_f32(x + i + 4 * k);
      sums[k] = vfmaq_f32(sums[k], v, v);
    }
  }
  for_quads(n - i, [&](int64_t j, int count) {
    const float32x4_t v = load(x + i + j, count);
    sums[0] = vfmaq_f32(sums[0], v, v);
  });
  const float total = vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])));
  const float factor = 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps);
  for_quads(n, [&](int64_t j, int count) {
    store(out + j, vmulq_f32(vmulq_n_f32(load(x + j, count), factor), load(weight + j, count)), count);
  });
}

// x / (1 + exp(-s))
inline float32x4_t times_sigmoid(float32x4_t x, float32x4_t s) {
  return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), exp4(vnegq_f32(s))));
}

void swiglu(const float* gate, const float* up, int64_t n, float* out) {
  for_quads(n, [&](int64_t i, int count) {
    const float32x4_t g = load(gate + i, count);
    store(out + i, vmulq_f32(times_sigmoid(g, g), load(up + i, count)), count);
  });
}

// 0.5 g (1 + tanh(u)) = g sigmoid(2u)
void geglu(const float* gate, const float* up, int64_t n, float* out) {
  constexpr float kTwiceRoot = 1.59576912f;  // 2 sqrt(2 / pi)
  for_quads(n, [&](int64_t i, int count) {
    const float32x4_t g = load(gate + i, count);
    const float32x4_t cubic = vfmaq_f32(vdupq_n_f32(1.0f), vmulq_n_f32(g, 0.044715f), g);
    const float32x4_t twice_u = vmulq_n_f32(vmulq_f32(g, cubic), kTwiceRoot);
    store(out + i, vmulq_f32(times_sigmoid(g, twice_u), load(up + i, count)), count);
  });
}

void to_half(const float* x, int64_t n, uint16_t* out) {
  for_quads(n, [&](int64_t i, int count) {
    const uint16x4_t half = vreinterpret_u16_f16(vcvt_f16_f32(load(x + i, count)));
    if (count == 4) return vst1_u16(out + i, half);
    uint16_t four[4];
    vst1_u16(four, half);
    for (int k = 0; k < count; ++k) out[i + k] = four[k];
  });
}

}  // namespace

namespace neon {

void install_elementwise(KernelTable& table) {
  table.delta_step = delta_step;
  table.quantize = quantize;
  table.rms_norm = rms_norm;
  table.swiglu = swiglu;
  table.geglu = geglu;
  table.to_half = to_half;
}

}  // namespace neon
}  // namespace nanomind
