// SPDX-License-Identifier: Apache-2.0
// Integer matmuls on SDOT (Armv8.2-A FEAT_DotProd): the lane form multiplies a vector of codes with one dword of an
// activation, which needs no broadcast.
#include "kernels/cpu/neon/matmul_int.h"

namespace nanomind {
namespace {

struct Sdot {
  static constexpr int kRows = 4;

  struct Row {
    int8x16_t hi[2], lo[2];
  };

  static Row load(const ActivationUnit& x) {
    return {{vld1q_s8(x.hi), vld1q_s8(x.hi + 16)}, {vld1q_s8(x.lo), vld1q_s8(x.lo + 16)}};
  }

  // In-order cores wait for a sum that the last instruction but three has written, so sums take turns.
  template <int kBits, Span kSpan, int kRows>
  static void sums(const QuadCodes& codes, const Row (&rows)[kRows], const int32_t (&start)[kRows],
                   int32x4_t (&out)[kRows]) {
    constexpr int kFrom = kSpan == Span::second_half ? 1 : 0;
    constexpr int kTo = kSpan == Span::first_half ? 1 : 2;
    if constexpr (kRows <= 2) {
      int32x4_t totals[2 * kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        totals[2 * r] = vdupq_n_s32(0);
        totals[2 * r + 1] = vdupq_n_s32(start[r]);
      }
#pragma GCC unroll 4
      for (int half = kFrom; half < kTo; ++half) {
        int8x16_t x[2 * kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          x[2 * r] = rows[r].hi[half];
          x[2 * r + 1] = rows[r].lo[half];
        }
        add(totals, codes + 4 * half, x);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) out[r] = vaddq_s32(vshlq_n_s32(totals[2 * r], 8), totals[2 * r + 1]);
    } else {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) out[r] = vdupq_n_s32(0);
#pragma GCC unroll 4
      for (int half = kFrom; half < kTo; ++half) {
        int8x16_t x[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) x[r] = rows[r].hi[half];
        add(out, codes + 4 * half, x);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) out[r] = vaddq_s32(vshlq_n_s32(out[r], 8), vdupq_n_s32(start[r]));
#pragma GCC unroll 4
      for (int half = kFrom; half < kTo; ++half) {
        int8x16_t x[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) x[r] = rows[r].lo[half];
        add(out, codes + 4 * half, x);
      }
    }
  }

 private:
  // Each x holds 16 columns of one plane, which meet four vectors of codes.
  template <int kSums>
  static void add(int32x4_t (&totals)[kSums], const int8x16_t* codes, const int8x16_t (&x)[kSums]) {
#pragma GCC unroll 4
    for (int i = 0; i < kSums; ++i) totals[i] = vdotq_laneq_s32(totals[i], codes[0], x[i], 0);
#pragma GCC unroll 4
    for (int i = 0; i < kSums; ++i) totals[i] = vdotq_laneq_s32(totals[i], codes[1], x[i], 1);
#pragma GCC unroll 4
    for (int i = 0; i < kSums; ++i) totals[i] = vdotq_laneq_s32(totals[i], codes[2], x[i], 2);
#pragma GCC unroll 4
    for (int i = 0; i < kSums; ++i) totals[i] = vdotq_laneq_s32(totals[i], codes[3], x[i], 3);
  }
};

}  // namespace

namespace dotprod {

void install_int_matmul(KernelTable& table) { install_all<Sdot>(table); }

}  // namespace dotprod
}  // namespace nanomind
