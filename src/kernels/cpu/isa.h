// SPDX-License-Identifier: Apache-2.0
// The list of ISAs that select.cc composes tables from, defined once per architecture (isa_x86.cc, isa_arm.cc,
// isa_other.cc).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/table.h"

namespace nanomind {

struct Isa {
  const char* name;
  uint32_t needs;  // CpuFeature bits
  void (*install)(KernelTable& table);
};

// From scalar to the widest; a table is installed over a copy of the one before it.
std::span<const Isa> isas();

}  // namespace nanomind
