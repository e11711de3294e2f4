// SPDX-License-Identifier: Apache-2.0
// exp of four floats. Private to kernels/cpu/neon, internal linkage.
#pragma once

#include <arm_neon.h>

namespace nanomind {
namespace {

// Relative error below 2e-7 for x in [-87.33, 88.02], where exp is a normal float; 0 below, exp(88.02) above; NaN
// stays. x = n ln2 + r, |r| <= ln2 / 2, exp(x) = 2^n exp(r); the Taylor series of exp(r) to r^7 is off by at most (ln2
// / 2)^8 / 8! = 5e-9, the rest is rounding. ln2 is split in two floats.
inline float32x4_t exp4(float32x4_t x) {
  constexpr float kLowest = -87.336540f, kHighest = 88.02f;
  const float32x4_t clamped = vminq_f32(vmaxq_f32(x, vdupq_n_f32(kLowest)), vdupq_n_f32(kHighest));
  const float32x4_t n = vrndnq_f32(vmulq_n_f32(clamped, 1.44269504f));
  float32x4_t r = vfmsq_f32(clamped, n, vdupq_n_f32(0x1.62e43p-1f));
  r = vfmsq_f32(r, n, vdupq_n_f32(-0x1.05c61p-29f));
  float32x4_t y = vdupq_n_f32(1.0f / 5040);
  y = vfmaq_f32(vdupq_n_f32(1.0f / 720), y, r);
  y = vfmaq_f32(vdupq_n_f32(1.0f / 120), y, r);
  y = vfmaq_f32(vdupq_n_f32(1.0f / 24), y, r);
  y = vfmaq_f32(vdupq_n_f32(1.0f / 6), y, r);
  y = vfmaq_f32(vdupq_n_f32(0.5f), y, r);
  y = vfmaq_f32(vdupq_n_f32(1.0f), y, r);
  y = vfmaq_f32(vdupq_n_f32(1.0f), y, r);
  const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
  y = vmulq_f32(y, vreinterpretq_f32_s32(power));
  const uint32x4_t vanishes = vcltq_f32(x, vdupq_n_f32(kLowest));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vanishes));
}

}  // namespace
}  // namespace nanomind
