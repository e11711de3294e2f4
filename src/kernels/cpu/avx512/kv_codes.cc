// SPDX-License-Identifier: Apache-2.0
// Codes of keys and values: the plain loops with this folder's flags.
#include "kernels/cpu/avx512/vectors.h"
#include "kernels/cpu/install.h"
#include "kernels/cpu/kv_code_loops.h"

namespace nanomind::avx512 {
namespace {

struct Halves {
  static uint16_t from(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
  static void widen(const uint16_t* halves, int n, float* out) {
    for (int i = 0; i < n; i += 16) {
      const __mmask16 lanes = first_lanes(n - i);
      _mm512_mask_storeu_ps(out + i, lanes, load_floats(lanes, halves + i));
    }
  }
};

}  // namespace

void install_kv_codes(KernelTable& table) { nanomind::install_kv_codes<Halves>(table); }

}  // namespace nanomind::avx512
