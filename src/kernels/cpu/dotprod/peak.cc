// SPDX-License-Identifier: Apache-2.0
// The ceiling of dot products: an sdot makes 16 products and as many sums. Assembly, so that nothing is folded.
#include "kernels/cpu/install.h"

namespace nanomind::dotprod {
namespace {

double peak(int64_t rounds) {
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "sdot v0.4s, v31.16b, v31.16b\n sdot v1.4s, v31.16b, v31.16b\n sdot v2.4s, v31.16b, v31.16b\n"
        "sdot v3.4s, v31.16b, v31.16b\n sdot v4.4s, v31.16b, v31.16b\n sdot v5.4s, v31.16b, v31.16b\n"
        "sdot v6.4s, v31.16b, v31.16b\n sdot v7.4s, v31.16b, v31.16b\n" ::
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
  }
  return 32.0 * 8 * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::dotprod
