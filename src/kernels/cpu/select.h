// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel table once at start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/cpu/table.h"

namespace nanomind {

// CpuFeature bits of the processor that runs this (and that the operating system has enabled).
uint32_t detect_cpu_features();

// Names of the tables that this build has and a CPU with these features can run, from scalar to the widest.
std::vector<std::string> runnable_isas(uint32_t features = detect_cpu_features());

// The widest runnable table, or the one called `name` when it is not empty (NANOMIND_ISA, read by the caller).
// Unknown or not runnable: an error that lists the names that are.
Result<KernelTable> select_kernels(std::string_view name, uint32_t features = detect_cpu_features());

}  // namespace nanomind
