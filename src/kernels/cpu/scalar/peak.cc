// SPDX-License-Identifier: Apache-2.0
// The ceiling of scalar products: float multiplications and additions in as many chains as hide their latency.
#include "kernels/cpu/install.h"

namespace nanomind::scalar {
namespace {

double peak(int64_t rounds) {
  constexpr int kChains = 32;
  float sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
    const float x = 1.0f / static_cast<float>(i + 1);
    for (int j = 0; j < kChains; ++j) sum[j] = sum[j] * x + x;
    __asm__ volatile("" : : "r"(sum) : "memory");  // the sums are wanted
  }
  return 2.0 * kChains * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::scalar
