// SPDX-License-Identifier: Apache-2.0
// Integer matmuls on SMMLA (FEAT_I8MM): two rows of weights meet the high and the low plane of an activation, eight
// columns of each, in one instruction, so that one row of activations fills it as well as many.
#include "kernels/cpu/neon/matmul_int.h"

namespace nanomind {
namespace {

struct Smmla {
  static constexpr int kRows = 8;

  // [g] holds columns 8g..8g+7 of the high plane, then those of the low one.
  struct Row {
    int8x16_t planes[4];
  };

  static Row load(const ActivationUnit& x) {
    Row row;
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) row.planes[g] = vcombine_s8(vld1_s8(x.hi + 8 * g), vld1_s8(x.lo + 8 * g));
    return row;
  }

  template <int kBits, Span kSpan, int kRows>
  [[gnu::always_inline]] static void sums(const QuadCodes& codes, const Row (&rows)[kRows],
                                          const int32_t (&start)[kRows], int32x4_t (&out)[kRows]) {
    constexpr int kFrom = kSpan == Span::second_half ? 2 : 0;
    constexpr int kTo = kSpan == Span::first_half ? 2 : 4;
    // Of rows 0 and 1 of the weights, and of 2 and 3: high, low, high, low.
    int32x4_t totals[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      totals[r][0] = totals[r][1] = vreinterpretq_s32_s64(vdupq_n_s64(static_cast<int64_t>(start[r]) << 32));
    }
#pragma GCC unroll 4
    for (int g = kFrom; g < kTo; ++g) {
      const int32x4_t first = vreinterpretq_s32_s8(codes[2 * g]), second = vreinterpretq_s32_s8(codes[2 * g + 1]);
      const int8x16_t rows01 = vreinterpretq_s8_s32(vzip1q_s32(first, second));
      const int8x16_t rows23 = vreinterpretq_s8_s32(vzip2q_s32(first, second));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        totals[r][0] = vmmlaq_s32(totals[r][0], rows01, rows[r].planes[g]);
        totals[r][1] = vmmlaq_s32(totals[r][1], rows23, rows[r].planes[g]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int32x4_t shifts = {8, 0, 8, 0};  // high is worth 256 of low
      out[r] = vpaddq_s32(vshlq_s32(totals[r][0], shifts), vshlq_s32(totals[r][1], shifts));
    }
  }
};

}  // namespace

namespace i8mm {

void install_int_matmul(KernelTable& table) { install_all<Smmla>(table); }

}  // namespace i8mm
}  // namespace nanomind
