// SPDX-License-Identifier: Apache-2.0
// The only ISA of architectures without kernels of their own.
#include "kernels/cpu/install.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/select.h"

namespace nanomind {
namespace {

constexpr Isa kIsas[] = {
    {"scalar", 0,
     [](KernelTable& table) {
       scalar::install_matmul(table);
       scalar::install_attention(table);
       scalar::install_kv_codes(table);
       scalar::install_elementwise(table);
       scalar::install_peak(table);
     }},
};

}  // namespace

std::span<const Isa> isas() { return kIsas; }

uint32_t detect_cpu_features() { return 0; }

}  // namespace nanomind
