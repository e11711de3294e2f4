// SPDX-License-Identifier: Apache-2.0
// The ceiling of matrix products: an smmla makes 32 products and as many sums. Assembly, so that nothing is folded.
#include "kernels/cpu/install.h"

namespace nanomind::i8mm {
namespace {

double peak(int64_t rounds) {
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "smmla v0.4s, v31.16b, v31.16b\n smmla v1.4s, v31.16b, v31.16b\n smmla v2.4s, v31.16b, v31.16b\n"
        "smmla v3.4s, v31.16b, v31.16b\n smmla v4.4s, v31.16b, v31.16b\n smmla v5.4s, v31.16b, v31.16b\n"
        "smmla v6.4s, v31.16b, v31.16b\n smmla v7.4s, v31.16b, v31.16b\n" ::
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
  }
  return 64.0 * 8 * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::i8mm
