// SPDX-License-Identifier: Apache-2.0
// The ceiling of NEON byte products: an smlal of 8 bytes makes 8 products and as many sums. Assembly, so that nothing
// is folded.
#include "kernels/cpu/install.h"

namespace nanomind::neon {
namespace {

double peak(int64_t rounds) {
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "smlal v0.8h, v31.8b, v31.8b\n smlal v1.8h, v31.8b, v31.8b\n smlal v2.8h, v31.8b, v31.8b\n"
        "smlal v3.8h, v31.8b, v31.8b\n smlal v4.8h, v31.8b, v31.8b\n smlal v5.8h, v31.8b, v31.8b\n"
        "smlal v6.8h, v31.8b, v31.8b\n smlal v7.8h, v31.8b, v31.8b\n" ::
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
  }
  return 16.0 * 8 * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::neon
