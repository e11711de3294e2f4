// SPDX-License-Identifier: Apache-2.0
// Codes of keys and values: the plain loops, with halves converted by instructions.
#include <arm_neon.h>

#include "kernels/cpu/install.h"
#include "kernels/cpu/kv_code_loops.h"

namespace nanomind::neon {
namespace {

struct Halves {
  static uint16_t from(float x) { return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0); }
  static void widen(const uint16_t* halves, int n, float* out) {
    int i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + i))));
    for (; i < n; ++i) out[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(halves[i]))), 0);
  }
};

}  // namespace

void install_kv_codes(KernelTable& table) { nanomind::install_kv_codes<Halves>(table); }

}  // namespace nanomind::neon
