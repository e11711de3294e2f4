// SPDX-License-Identifier: Apache-2.0
// The integer matmul of the ARM folders. `Dot` is what differs between them, the product of signed bytes:
//   kRows                     activation rows that a tile keeps in registers
//   Row                       one unit of an activation row, made by `Row load(const ActivationUnit&)`
//   sums<kBits, kSpan>(...)   per activation row: start + codes of four rows (kBits wide) times that Row, over the
//   columns
//                             kSpan, as exact int32
// Two row groups run side by side, so that a thread reads two streams and an activation is loaded once for both.
#pragma once

#include "kernels/cpu/neon/formats_k.h"
#include "kernels/cpu/neon/formats_table.h"

namespace nanomind {
namespace {

enum class Span { unit, first_half, second_half };

// What a tile needs of its activation units besides the codes.
template <int kRows>
struct RowTerms {
  float scale[kRows];
  // Of each half where those have scales of their own, else of the unit in [0]:
  float sum[2][kRows];      // scale * sum, what a min is multiplied by
  int32_t start[2][kRows];  // -offset * sum
};

template <class Format, int kRows>
inline void set_terms(const ActivationUnit& x, int r, RowTerms<kRows>& terms) {
  const int32_t sums[2] = {Format::kScales == 2 ? x.sum[0] : x.sum[0] + x.sum[1], x.sum[1]};
  terms.scale[r] = x.scale;
#pragma GCC unroll 2
  for (int half = 0; half < Format::kScales; ++half) {
    terms.sum[half][r] = x.scale * static_cast<float>(sums[half]);
    terms.start[half][r] = -Format::kOffset * sums[half];
  }
}

// Adds the product of one unit of kGroups row groups with kRows activation rows from `row` to totals[group][row].
template <class Format, class Dot, int kGroups, int kRows>
inline void add_unit(const typename Format::Block* const (&blocks)[kGroups], int unit,
                     const UnitScales (&scales)[kGroups], const ActivationUnit* x, int64_t x_stride, int row,
                     float (&totals)[kGroups][kMaxTileRows][16]) {
  typename Dot::Row rows[kRows];
  RowTerms<kRows> terms;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const ActivationUnit& activation = x[(row + r) * x_stride];
    rows[r] = Dot::load(activation);
    set_terms<Format>(activation, r, terms);
  }
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 1
    for (int quad = 0; quad < 4; ++quad) {
      QuadCodes codes;
      Format::codes(*blocks[g], unit, quad, codes);
      int32x4_t sums[2][kRows];
      if constexpr (Format::kScales == 1) {
        Dot::template sums<Format::kBits, Span::unit>(codes, rows, terms.start[0], sums[0]);
      } else {
        Dot::template sums<Format::kBits, Span::first_half>(codes, rows, terms.start[0], sums[0]);
        Dot::template sums<Format::kBits, Span::second_half>(codes, rows, terms.start[1], sums[1]);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        float* const out = totals[g][row + r] + 4 * quad;
        float32x4_t total = vld1q_f32(out);
#pragma GCC unroll 2
        for (int half = 0; half < Format::kScales; ++half) {
          const float32x4_t scale = vmulq_n_f32(vld1q_f32(scales[g].scale[half] + 4 * quad), terms.scale[r]);
          total = vfmaq_f32(total, vcvtq_f32_s32(sums[half][r]), scale);
          if constexpr (Format::kMin) {
            total = vfmaq_n_f32(total, vld1q_f32(scales[g].min[half] + 4 * quad), terms.sum[half][r]);
          }
        }
        vst1q_f32(out, total);
      }
    }
  }
}

// Asks for what this stream reads 1 KiB from now. Past the end of its group that is the group it takes next: those in
// between belong to the other streams.
template <int kGroups>
inline void prefetch(const std::byte* at, size_t bytes, const std::byte* end, size_t group_bytes) {
  at += 1024;
  if (at >= end) at += (kGroups - 1) * group_bytes;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
}

template <class Format, class Dot, int kGroups>
void multiply_groups(const IntMatmulArgs& a, int first_group) {
  using Block = typename Format::Block;
  constexpr size_t kUnitBytes = sizeof(Block) / Format::kUnits;
  const std::byte* const weights = a.weights + first_group * a.group_bytes;
  float totals[kGroups][kMaxTileRows][16];
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < 16 * a.m; i += 4) vst1q_f32(&totals[g][0][0] + i, vdupq_n_f32(0.0f));
  }
  const ActivationUnit* x = a.x;
  for (int64_t b = 0; b < a.blocks; ++b) {
    const Block* blocks[kGroups];
    for (int g = 0; g < kGroups; ++g) blocks[g] = reinterpret_cast<const Block*>(weights + g * a.group_bytes) + b;
    for (int unit = 0; unit < Format::kUnits; ++unit, ++x) {
      UnitScales scales[kGroups];
      for (int g = 0; g < kGroups; ++g) {
        prefetch<kGroups>(reinterpret_cast<const std::byte*>(blocks[g]) + unit * kUnitBytes, kUnitBytes,
                          weights + (g + 1) * a.group_bytes, a.group_bytes);
        Format::scales(*blocks[g], unit, scales[g]);
      }
      int row = 0;
      const auto add = [&]<int kRows>() {
        add_unit<Format, Dot, kGroups, kRows>(blocks, unit, scales, x, a.x_stride, row, totals);
        row += kRows;
      };
      while (row + Dot::kRows <= a.m) add.template operator()<Dot::kRows>();
      if constexpr (Dot::kRows > 4) {
        if (row + 4 <= a.m) add.template operator()<4>();
      }
      if constexpr (Dot::kRows > 2) {
        if (row + 2 <= a.m) add.template operator()<2>();
      }
      if constexpr (Dot::kRows > 1) {
        if (row < a.m) add.template operator()<1>();
      }
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < a.m; ++i) {
      float* const out = a.out + i * a.out_stride + 16 * (first_group + g);
      for (int r = 0; r < 16; r += 4) vst1q_f32(out + r, vld1q_f32(totals[g][i] + r));
    }
  }
}

template <class Format, class Dot>
void multiply(const IntMatmulArgs& a) {
  int g = 0;
  for (; g + 2 <= a.groups; g += 2) multiply_groups<Format, Dot, 2>(a, g);
  if (g < a.groups) multiply_groups<Format, Dot, 1>(a, g);
}

template <class Dot>
void install_all(KernelTable& table) {
  const auto set = [&](IntWeight type, IntMatmul f) { table.matmul[static_cast<int>(type)] = f; };
  set(IntWeight::q4_0, multiply<FormatQ4_0, Dot>);
  set(IntWeight::q4_1, multiply<FormatQ4_1, Dot>);
  set(IntWeight::q5_0, multiply<FormatQ5_0, Dot>);
  set(IntWeight::q5_1, multiply<FormatQ5_1, Dot>);
  set(IntWeight::q8_0, multiply<FormatQ8_0, Dot>);
  set(IntWeight::q2_k, multiply<FormatQ2_K, Dot>);
  set(IntWeight::q3_k, multiply<FormatQ3_K, Dot>);
  set(IntWeight::q4_k, multiply<FormatQ4_K, Dot>);
  set(IntWeight::q5_k, multiply<FormatQ5_K, Dot>);
  set(IntWeight::q6_k, multiply<FormatQ6_K, Dot>);
  set(IntWeight::iq4_nl, multiply<FormatIQ4_NL, Dot>);
  set(IntWeight::iq4_xs, multiply<FormatIQ4_XS, Dot>);
  set(IntWeight::mxfp4, multiply<FormatMXFP4, Dot>);
}

}  // namespace
}  // namespace nanomind
