// SPDX-License-Identifier: Apache-2.0
// Integer matmuls for the AArch64 baseline: byte products are summed in 16 bits as long as they fit, then pairwise
// in 32.
#include "kernels/cpu/neon/matmul_int.h"

namespace nanomind {
namespace {

struct Smull {
  // The broadcast dwords of one activation unit take half of the registers.
  static constexpr int kRows = 1;

  // [p] holds dword p of the plane four times.
  struct Row {
    int8x16_t hi[8], lo[8];
  };

  static Row load(const ActivationUnit& x) {
    Row row;
    broadcast(x.hi, row.hi);
    broadcast(x.lo, row.lo);
    return row;
  }

  template <int kBits, Span kSpan>
  static void sums(const QuadCodes& codes, Row (&rows)[1], const int32_t (&start)[1], int32x4_t (&out)[1]) {
    constexpr int kFrom = kSpan == Span::second_half ? 4 : 0;
    constexpr int kTo = kSpan == Span::first_half ? 4 : 8;
    // |hi| <= 127 and |lo| <= 128 times codes below 2^kBits, 8-bit codes being signed: so many products fit in int16.
    constexpr int kFitHi = kBits > 6 ? 2 : kBits == 6 || kTo - kFrom == 4 ? 4 : 8;
    constexpr int kFitLo = kBits <= 6 ? kFitHi : 1;
    Row& row = rows[0];
    // Without this GCC keeps the low half of each of these vectors in a second register, and runs out of them.
    for (int p = kFrom; p < kTo; ++p) asm("" : "+w"(row.hi[p]), "+w"(row.lo[p]));
    const Pairs hi = products<kFrom, kTo, kFitHi>(codes, row.hi, {vdupq_n_s32(0), vdupq_n_s32(0)});
    const Pairs lo = products<kFrom, kTo, kFitLo>(codes, row.lo, {vshlq_n_s32(hi.low, 8), vshlq_n_s32(hi.high, 8)});
    out[0] = vaddq_s32(vpaddq_s32(lo.low, lo.high), vdupq_n_s32(start[0]));
  }

 private:
  // Two partial sums each of rows 0 and 1 (low), 2 and 3 (high).
  struct Pairs {
    int32x4_t low, high;
  };

  static void broadcast(const int8_t* plane, int8x16_t* out) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int32x4_t v = vreinterpretq_s32_s8(vld1q_s8(plane + 16 * i));
      out[4 * i] = vreinterpretq_s8_s32(vdupq_laneq_s32(v, 0));
      out[4 * i + 1] = vreinterpretq_s8_s32(vdupq_laneq_s32(v, 1));
      out[4 * i + 2] = vreinterpretq_s8_s32(vdupq_laneq_s32(v, 2));
      out[4 * i + 3] = vreinterpretq_s8_s32(vdupq_laneq_s32(v, 3));
    }
  }

  template <int kFrom, int kTo, int kFit>
  static Pairs products(const int8x16_t* codes, const int8x16_t* x, Pairs total) {
#pragma GCC unroll 8
    for (int p = kFrom; p < kTo; p += kFit) {
      int16x8_t low = vmull_s8(vget_low_s8(codes[p]), vget_low_s8(x[p]));
      int16x8_t high = vmull_high_s8(codes[p], x[p]);
#pragma GCC unroll 8
      for (int i = 1; i < kFit; ++i) {
        low = vmlal_s8(low, vget_low_s8(codes[p + i]), vget_low_s8(x[p + i]));
        high = vmlal_high_s8(high, codes[p + i], x[p + i]);
      }
      total.low = vpadalq_s16(total.low, low);
      total.high = vpadalq_s16(total.high, high);
    }
    return total;
  }
};

}  // namespace

namespace neon {

void install_int_matmul(KernelTable& table) { install_all<Smull>(table); }

}  // namespace neon
}  // namespace nanomind
