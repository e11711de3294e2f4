// SPDX-License-Identifier: Apache-2.0
// Scores, running softmax and weighted values of one block of keys, for the AArch64 baseline.
#include <arm_neon.h>

#include "kernels/cpu/neon/exp.h"
#include "kernels/cpu/neon/product.h"
#include "kernels/cpu/table.h"

namespace nanomind {
namespace {

template <class From>
void qk(const float* q, int64_t q_stride, int m, const typename From::Element* k, int d, float* scores) {
  product<From>({.w = k,
                 .strip_stride = 16,
                 .w_stride = kKvBlock,
                 .columns = d,
                 .outputs = kKvBlock,
                 .x = q,
                 .x_stride = q_stride,
                 .m = m,
                 .keep = nullptr,
                 .out = scores,
                 .out_stride = kKvBlock});
}

template <class From>
void pv(const float* p, int m, const typename From::Element* v, int first, int last, int d, const float* correction,
        float* out, int64_t out_stride) {
  product<From>({.w = v + static_cast<int64_t>(first) * d,
                 .strip_stride = 16,
                 .w_stride = d,
                 .columns = last - first,
                 .outputs = d,
                 .x = p + first,
                 .x_stride = kKvBlock,
                 .m = m,
                 .keep = correction,
                 .out = out,
                 .out_stride = out_stride});
}

float softmax_block(float* scores, int first, int last, float scale, float* max, float* sum) {
  constexpr int32_t kLanes[4] = {0, 1, 2, 3};
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t s[kKvBlock / 4];
  float32x4_t top = lowest;
  int32x4_t key = vld1q_s32(kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kKvBlock / 4; ++i) {
    const uint32x4_t seen = vandq_u32(vcgeq_s32(key, vdupq_n_s32(first)), vcltq_s32(key, vdupq_n_s32(last)));
    s[i] = vbslq_f32(seen, vmulq_n_f32(vld1q_f32(scores + 4 * i), scale), lowest);
    top = vmaxq_f32(top, s[i]);
    key = vaddq_s32(key, vdupq_n_s32(4));
  }
  const float old_max = *max;
  const float block_max = vmaxvq_f32(top);
  const float new_max = block_max > old_max ? block_max : old_max;
  const float32x4_t shift = vdupq_n_f32(new_max);
  float32x4_t total = vdupq_n_f32(0.0f);
#pragma GCC unroll 16
  for (int i = 0; i < kKvBlock / 4; ++i) {
    const float32x4_t e = exp4(vsubq_f32(s[i], shift));
    vst1q_f32(scores + 4 * i, e);
    total = vaddq_f32(total, e);
  }
  const float correction = vgetq_lane_f32(exp4(vdupq_n_f32(old_max - new_max)), 0);
  *sum = *sum * correction + vaddvq_f32(total);
  *max = new_max;
  return correction;
}

}  // namespace

namespace neon {

void install_attention(KernelTable& table) {
  table.qk = qk<FromHalf>;
  table.qk_float = qk<FromFloat>;
  table.softmax_block = softmax_block;
  table.pv = pv<FromHalf>;
  table.pv_float = pv<FromFloat>;
}

}  // namespace neon
}  // namespace nanomind
