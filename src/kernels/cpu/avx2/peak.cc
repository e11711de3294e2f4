// SPDX-License-Identifier: Apache-2.0
// The ceiling of AVX2 byte products: vpmaddubsw makes 32 products and 16 of their sums, and is what limits. Assembly,
// so that nothing is folded.
#include "kernels/cpu/install.h"

namespace nanomind::avx2 {
namespace {

double peak(int64_t rounds) {
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm0\n vpmaddubsw %%ymm15, %%ymm15, %%ymm1\n"
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm2\n vpmaddubsw %%ymm15, %%ymm15, %%ymm3\n"
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm4\n vpmaddubsw %%ymm15, %%ymm15, %%ymm5\n"
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm6\n vpmaddubsw %%ymm15, %%ymm15, %%ymm7\n" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  }
  return 64.0 * 8 * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::avx2
