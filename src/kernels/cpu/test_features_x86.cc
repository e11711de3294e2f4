// SPDX-License-Identifier: Apache-2.0
// Of x86: tiles are emulated where the CPU has none.
#include "kernels/cpu/select.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/test_features.h"
#include "kernels/cpu/test_tile_emulator.h"

namespace nanomind {

uint32_t testable_features() {
  const uint32_t features = detect_cpu_features();
  if ((features & kCpuAmx) != 0) return features;
  emulate_tiles();
  return features | kCpuAmx;
}

}  // namespace nanomind
