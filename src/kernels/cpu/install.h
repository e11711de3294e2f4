// SPDX-License-Identifier: Apache-2.0
// What the ISA folders export: one function per source file, which puts the file's kernels into a table. Their code is
// compiled with flags that not every CPU can run, so nothing that could be merged with other files' code comes in from
// here.
#pragma once

#include "kernels/cpu/table.h"

namespace nanomind {

namespace scalar {
void install_matmul(KernelTable& table);
void install_attention(KernelTable& table);
void install_kv_codes(KernelTable& table);
void install_elementwise(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace scalar

namespace avx2 {
void install_gemm(KernelTable& table);
void install_int_matmul(KernelTable& table);
void install_float_matmul(KernelTable& table);
void install_attention(KernelTable& table);
void install_kv_codes(KernelTable& table);
void install_elementwise(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace avx2

namespace avx512 {
void install_int_matmul(KernelTable& table);
void install_float_matmul(KernelTable& table);
void install_gemm(KernelTable& table);
void install_gemm_fast(KernelTable& table);
void install_attention(KernelTable& table);
void install_integer_attention(KernelTable& table);
void install_kv_codes(KernelTable& table);
void install_elementwise(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace avx512

namespace amx {
void install_gemm(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace amx

namespace neon {
void install_int_matmul(KernelTable& table);
void install_float_matmul(KernelTable& table);
void install_attention(KernelTable& table);
void install_kv_codes(KernelTable& table);
void install_elementwise(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace neon

namespace dotprod {
void install_int_matmul(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace dotprod

namespace i8mm {
void install_int_matmul(KernelTable& table);
void install_peak(KernelTable& table);
}  // namespace i8mm

}  // namespace nanomind
