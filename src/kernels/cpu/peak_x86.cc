// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "kernels/cpu/peak.h"
#include "kernels/cpu/select.h"

namespace nanomind {
namespace {

constexpr int kChains = 16;  // covers the latency of any core
constexpr int kSteps = 1 << 21;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One vpdpbusd of 512 bits does 64 products and as many sums. Written in assembly, so that nothing is folded.
double vnni_ops_per_second() {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) {
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
  return 128.0 * kChains * kSteps / seconds_since(start);
}

// vpmaddubsw does 32 products and 16 sums, vpaddw the rest; the multiply is what limits.
double maddubs_ops_per_second() {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) {
    __asm__ volatile(
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm0\n vpmaddubsw %%ymm15, %%ymm15, %%ymm1\n"
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm2\n vpmaddubsw %%ymm15, %%ymm15, %%ymm3\n"
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm4\n vpmaddubsw %%ymm15, %%ymm15, %%ymm5\n"
        "vpmaddubsw %%ymm15, %%ymm15, %%ymm6\n vpmaddubsw %%ymm15, %%ymm15, %%ymm7\n" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  }
  return 64.0 * 8 * kSteps / seconds_since(start);
}

}  // namespace

double measure_int8_peak() {
  const uint32_t features = detect_cpu_features();
  double best = 0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    if (features & kCpuAvx512)
      best = std::max(best, vnni_ops_per_second());
    else if (features & kCpuAvx2)
      best = std::max(best, maddubs_ops_per_second());
  }
  return best;
}

}  // namespace nanomind
