// SPDX-License-Identifier: Apache-2.0
// The ISAs of x86-64.
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
    {"avx2", kCpuAvx2,
     [](KernelTable& table) {
       avx2::install_int_matmul(table);
       avx2::install_gemm(table);
       avx2::install_float_matmul(table);
       avx2::install_attention(table);
       avx2::install_kv_codes(table);
       avx2::install_elementwise(table);
       avx2::install_peak(table);
     }},
    {"avx512", kCpuAvx2 | kCpuAvx512,
     [](KernelTable& table) {
       avx512::install_int_matmul(table);
       avx512::install_float_matmul(table);
       avx512::install_gemm(table);
       avx512::install_gemm_fast(table);
       avx512::install_attention(table);
       avx512::install_integer_attention(table);
       avx512::install_kv_codes(table);
       avx512::install_elementwise(table);
       avx512::install_peak(table);
     }},
    {"amx", kCpuAvx2 | kCpuAvx512 | kCpuAvx512Bf16 | kCpuAmx,
     [](KernelTable& table) {
       amx::install_gemm(table);
       amx::install_peak(table);
     }},
};

}  // namespace

std::span<const Isa> isas() { return kIsas; }

}  // namespace nanomind
