// SPDX-License-Identifier: Apache-2.0
// What an x86 processor has (CPUID) and the operating system saves on a task switch (XGETBV). Bit positions: Intel SDM
// vol. 2, "CPUID", and vol. 1, "Managing State Using the XSAVE Feature Set". Tiles also need Linux's permission:
// Documentation/arch/x86/xstate.rst.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/select.h"

namespace nanomind {
namespace {

// XCR0: which register states the operating system has enabled. Needs OSXSAVE.
uint32_t enabled_states() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Asks for tile registers on behalf of the whole process, threads to come included. Asking again changes nothing.
bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

constexpr bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

}  // namespace

uint32_t detect_cpu_features() {
  constexpr uint32_t kOsxsave = 1u << 27, kAvx = 1u << 28, kFma = 1u << 12, kF16c = 1u << 29;
  constexpr uint32_t kAvx2 = 1u << 5, kBmi2 = 1u << 8;
  constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;
  constexpr uint32_t kVbmi = 1u << 1, kVnni = 1u << 11;
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kBf16 = 1u << 5;
  constexpr uint32_t kYmmState = 0x6, kZmmState = 0xE6, kTileState = 0x60000;

  uint32_t a, b, c1, d, b7, c7, d7;
  if (!__get_cpuid(1, &a, &b, &c1, &d) || !has(c1, kOsxsave | kAvx)) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return 0;
  const uint32_t states = enabled_states();

  uint32_t features = 0;
  if (has(states, kYmmState) && has(c1, kFma | kF16c) && has(b7, kAvx2 | kBmi2)) features |= kCpuAvx2;
  if (has(states, kZmmState) && has(b7, kF | kDq | kBw | kVl) && has(c7, kVbmi | kVnni)) features |= kCpuAvx512;
  if (__get_cpuid_count(7, 1, &a, &b, &c1, &d) && has(features, kCpuAvx512) && has(a, kBf16)) {
    features |= kCpuAvx512Bf16;
  }
  if (has(states, kTileState) && has(d7, kAmxTile | kAmxBf16) && tiles_permitted()) features |= kCpuAmx;
  return features;
}

}  // namespace nanomind
