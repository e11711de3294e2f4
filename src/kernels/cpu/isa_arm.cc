// SPDX-License-Identifier: Apache-2.0
// The ISAs of AArch64.
#include "kernels/cpu/install.h"
#include "kernels/cpu/isa.h"

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
    {"neon", kCpuNeon,
     [](KernelTable& table) {
       neon::install_int_matmul(table);
       neon::install_float_matmul(table);
       neon::install_attention(table);
       neon::install_kv_codes(table);
       neon::install_elementwise(table);
       neon::install_peak(table);
     }},
    {"dotprod", kCpuNeon | kCpuDotprod,
     [](KernelTable& table) {
       dotprod::install_int_matmul(table);
       dotprod::install_peak(table);
     }},
    {"i8mm", kCpuNeon | kCpuDotprod | kCpuI8mm,
     [](KernelTable& table) {
       i8mm::install_int_matmul(table);
       i8mm::install_peak(table);
     }},
};

}  // namespace

std::span<const Isa> isas() { return kIsas; }

}  // namespace nanomind
