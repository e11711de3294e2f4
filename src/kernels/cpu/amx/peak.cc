// SPDX-License-Identifier: Apache-2.0
// The ceiling of bf16 tiles: a TDPBF16PS makes 16 x 16 x 32 products and as many sums; six tiles of sums hide its
// latency.
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/install.h"

namespace nanomind::amx {
namespace {

double peak(int64_t rounds) {
  configure_tiles(kBlockRows);
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile(
        "tdpbf16ps %tmm7, %tmm6, %tmm0\n tdpbf16ps %tmm7, %tmm6, %tmm1\n"
        "tdpbf16ps %tmm7, %tmm6, %tmm2\n tdpbf16ps %tmm7, %tmm6, %tmm3\n"
        "tdpbf16ps %tmm7, %tmm6, %tmm4\n tdpbf16ps %tmm7, %tmm6, %tmm5\n");
  }
  release_tiles();
  return 2.0 * kTileRows * kTileRows * kStepColumns * 6 * static_cast<double>(rounds);
}

}  // namespace

void install_peak(KernelTable& table) { table.peak = peak; }

}  // namespace nanomind::amx
