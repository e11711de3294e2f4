// SPDX-License-Identifier: Apache-2.0
// The ceiling of VNNI: a vpdpbusd makes 64 products and as many sums; 16 chains hide its latency. Assembly, so that
// nothing is folded.
#include "kernels/cpu/install.h"

namespace nanomind::avx512 {
namespace {

double peak(int64_t rounds) {
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "vpdpbusd %%zmm31, %%zmm31, %%zmm0\n vpdpbusd %%zmm31, %%zmm31, %%zmm1\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm2\n vpdpbusd %%zmm31, %%zmm31, %%zmm3\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm4\n vpdpbusd %%zmm31, %%zmm31, %%zmm5\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm6\n vpdpbusd %%zmm31, %%zmm31, %%zmm7\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm8\n vpdpbusd %%zmm31, %%zmm31, %%zmm9\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm10\n vpdpbusd %%zmm31, %%zmm31, %%zmm11\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm12\n vpdpbusd %%zmm31, %%zmm31, %%zmm13\n"
        "vpdpbusd %%zmm31, %%zmm31, %%zmm14\n vpdpbusd %%zmm31, %%zmm31, %%zmm15\n" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
              "xmm13", "xmm14", "xmm15");
  }
  return 128.0 * 16 * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::avx512
