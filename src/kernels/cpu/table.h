// SPDX-License-Identifier: Apache-2.0
// The functions that a CPU offers to the CPU device: one struct of pointers, filled by the ISA folders from scalar
// upwards. Leaf code without policy: no threads, no allocation, no errors. Pointers never alias unless a comment says
// so. Pointers to packed weights are 64-byte aligned; other pointers have the alignment of their type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/integer_attention.h"
#include "kernels/cpu/kv_codes.h"
#include "tensor/packed_layout.h"

namespace nanomind {

// Bits of KernelTable::needs; what select.cc detects.
enum CpuFeature : uint32_t {
  kCpuAvx2 = 1u << 0,     // AVX2, FMA, F16C, BMI2
  kCpuAvx512 = 1u << 1,   // AVX-512 F, BW, DQ, VL, VNNI, VBMI, GFNI not required
  kCpuNeon = 1u << 2,     // AArch64 baseline
  kCpuDotprod = 1u << 3,  // SDOT/UDOT
  kCpuI8mm = 1u << 4,     // SMMLA
  kCpuAmx = 1u << 5,      // AMX tiles and bf16, with the operating system's permission
  kCpuAvx512Bf16 = 1u << 6,
};

// Largest number of activation rows that one matmul call takes.
inline constexpr int kMaxTileRows = 8;

// Columns of one attention block: keys per call of `qk` and `pv`.
inline constexpr int kKvBlock = 64;

// Product of `groups` packed row groups with `m` activation rows (1..kMaxTileRows):
//   out[i * out_stride + 16 * g + r] = sum over c of w[g][r][c] * x[i][c]
// `weights` is the first group, groups follow each other at `group_bytes`. `blocks` counts packed blocks per group. Row
// i of the activations starts at x + i * x_stride (units), and is padded to blocks * block columns.
struct IntMatmulArgs {
  const std::byte* weights;
  size_t group_bytes;
  int groups;
  int64_t blocks;
  const ActivationUnit* x;
  int64_t x_stride;
  int m;
  float* out;
  int64_t out_stride;
};
using IntMatmul = void (*)(const IntMatmulArgs&);

// The same with float activations (C columns used, x_stride in floats) for weights kept as floats.
struct FloatMatmulArgs {
  const std::byte* weights;
  size_t group_bytes;
  int groups;
  int64_t columns;
  const float* x;
  int64_t x_stride;
  int m;
  float* out;
  int64_t out_stride;
};
using FloatMatmul = void (*)(const FloatMatmulArgs&);

struct KernelTable {
  const char* name;  // of the widest ISA that was installed
  uint32_t needs;    // CpuFeature bits

  // The ceiling of products: runs `rounds` (any number above 0) of the products that the integer matmuls are made of,
  // on registers alone, and returns how many operations those were, two per product and sum. For benchmarks.
  double (*peak)(int64_t rounds);

  // Quantises n floats (any n > 0) to ceil(n/32) units; missing columns are zero. Per unit: scale = max|x| / (127 *
  // 256), q = round to nearest even of x / scale; an all-zero unit has scale 0. Non-finite input gives unspecified but
  // finite codes.
  void (*quantize)(const float* x, int64_t n, ActivationUnit* out);

  IntMatmul matmul[static_cast<int>(IntWeight::count)];

  // Products of many rows. Errors as a share of the root of the sum of squared terms, root mean square over results
  // with normal operands: below 5e-4 of `gemm`, below 8e-3 of `gemm_fast`.
  GemmKernels gemm;
  GemmKernels gemm_fast;
  // As gemm_fast, with finer steps for values behind a GELU. Null: that serves them as well.
  GemmKernels gemm_fast_gelu;

  FloatMatmul matmul_float[static_cast<int>(FloatWeight::count)];

  // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x. The mean is accumulated in double or in at least
  // 8 parallel float sums.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);

  // out[i] = gate[i] * sigmoid(gate[i]) * up[i]; out may be gate or up. Relative error of the exponential below 2e-7.
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);

  // out[i] = 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) * up[i], g = gate[i] (tanh-approximated GELU); aliasing as
  // swiglu.
  void (*geglu)(const float* gate, const float* up, int64_t n, float* out);

  // One token of the gated delta rule for one head, see op::DeltaRule: state[key_dim][value_dim] is decayed and
  // updated, out[value_dim] = state^T q. Dimensions are at most 512; nothing aliases.
  void (*delta_step)(float* state, const float* q, const float* k, const float* v, int key_dim, int value_dim,
                     float decay, float beta, float* out);

  // n floats to halves, round to nearest even.
  void (*to_half)(const float* x, int64_t n, uint16_t* out);

  // Scores of m query rows (any m >= 1; row i at q + i * q_stride, d floats) against one block of 64 keys stored
  // transposed, k[d][64] halves: scores[i * 64 + j] = sum over c of q[i][c] * k[c][j]. d is a multiple of 8, at most
  // 512.
  void (*qk)(const float* q, int64_t q_stride, int m, const uint16_t* k, int d, float* scores);

  // One step of the running softmax for one row of 64 scores: columns outside [first, last) count as minus infinity
  // (and become 0); s *= scale; new_max = max(*max, max s); s = exp(s - new_max); *sum = *sum * c + total(s), *max =
  // new_max, where c = exp(old max - new_max) is returned. *max starts at -infinity (then c = 0). first < last.
  float (*softmax_block)(float* scores, int first, int last, float scale, float* max, float* sum);

  // out[i][c] = out[i][c] * correction[i] + sum over j < count of p[i * 64 + j] * v[j][c], v[64][d] halves, out row i
  // at out + i * out_stride. When correction[i] is 0, out[i] is written without being read (it may be uninitialised).
  // Only keys in [first, last) are read (others have p = 0, and their v may be garbage).
  void (*pv)(const float* p, int m, const uint16_t* v, int first, int last, int d, const float* correction, float* out,
             int64_t out_stride);

  // `qk` and `pv` of keys k[d][64] and values v[64][d] that are floats.
  void (*qk_float)(const float* q, int64_t q_stride, int m, const float* k, int d, float* scores);
  void (*pv_float)(const float* p, int m, const float* v, int first, int last, int d, const float* correction,
                   float* out, int64_t out_stride);

  // Keys and values in codes of 8 and 4 bits.
  KvCodes kv_8;
  KvCodes kv_4;

  IntegerAttention integer_attention;
};

}  // namespace nanomind
