// SPDX-License-Identifier: Apache-2.0
// What an AArch64 processor has, as Linux tells every program in its auxiliary vector.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/cpu/select.h"

namespace nanomind {

uint32_t detect_cpu_features() {
  const unsigned long words = getauxval(AT_HWCAP);
  uint32_t features = 0;
  if (words & HWCAP_ASIMD) features |= kCpuNeon;
  if (words & HWCAP_ASIMDDP) features |= kCpuDotprod;
  if (getauxval(AT_HWCAP2) & HWCAP2_I8MM) features |= kCpuI8mm;
  return features;
}

}  // namespace nanomind
