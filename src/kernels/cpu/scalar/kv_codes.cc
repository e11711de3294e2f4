// SPDX-License-Identifier: Apache-2.0
// Portable codes of keys and values.
#include "kernels/cpu/install.h"
#include "kernels/cpu/kv_code_loops.h"
#include "tensor/half.h"

namespace nanomind::scalar {
namespace {

struct Halves {
  static uint16_t from(float x) { return half_from_float(x); }
  static void widen(const uint16_t* halves, int n, float* out) {
    for (int i = 0; i < n; ++i) out[i] = float_from_half(halves[i]);
  }
};

}  // namespace

void install_kv_codes(KernelTable& table) { nanomind::install_kv_codes<Halves>(table); }

}  // namespace nanomind::scalar
