// SPDX-License-Identifier: Apache-2.0
// Codes of keys and values: the plain loops with this folder's flags.
#include "kernels/cpu/avx2/vectors.h"
#include "kernels/cpu/install.h"
#include "kernels/cpu/kv_code_loops.h"

namespace nanomind::avx2 {
namespace {

struct Halves {
  static uint16_t from(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
  static void widen(const uint16_t* halves, int n, float* out) {
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, widen_halves(halves + i));
    for (; i < n; ++i) out[i] = _cvtsh_ss(halves[i]);
  }
};

}  // namespace

void install_kv_codes(KernelTable& table) { nanomind::install_kv_codes<Halves>(table); }

}  // namespace nanomind::avx2
