// SPDX-License-Identifier: Apache-2.0
// Product of float rows with a matrix whose outputs lie side by side (out[i][j] = sum over c of x[i][c] * w[c][j]), in
// register tiles of 4 rows x 16 outputs, 2 x 32 or 1 x 32. Float weights, attention scores and attention values are all
// this product. Private to kernels/cpu/neon, internal linkage.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace nanomind {
namespace {

// How eight neighbouring weights become floats.
struct FromFloat {
  using Element = float;
  static float32x4x2_t load(const float* w) { return {{vld1q_f32(w), vld1q_f32(w + 4)}}; }
};
struct FromHalf {
  using Element = uint16_t;
  static float32x4x2_t load(const uint16_t* w) {
    const float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(w));
    return {{vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)}};
  }
};
struct FromBf16 {
  using Element = uint16_t;
  static float32x4x2_t load(const uint16_t* w) {
    const uint16x8_t v = vld1q_u16(w);
    return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))}};
  }
};

// Strides are in elements of what they step through.
template <class Weight>
struct Product {
  const typename Weight::Element* w;
  int64_t strip_stride;  // from 16 outputs to the next 16
  int64_t w_stride;      // from column to column
  int64_t columns;
  int64_t outputs;  // a multiple of 8
  const float* x;
  int64_t x_stride;
  int m;
  const float* keep;  // [m]: out = keep * out + product, without reading out where keep is 0; null: all 0
  float* out;         // outputs lie side by side whatever strip_stride is
  int64_t out_stride;
};

template <class Weight, int kLane, int kRows, int kStrips, int kQuads>
inline void add_column(const typename Weight::Element* const (&w)[kStrips], int64_t at, const float32x4_t (&x)[kRows],
                       float32x4_t (&acc)[kRows][kStrips][kQuads]) {
#pragma GCC unroll 4
  for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 4
    for (int quad = 0; quad < kQuads; quad += 2) {
      const float32x4x2_t v = Weight::load(w[s] + at + 4 * quad);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r][s][quad] = vfmaq_laneq_f32(acc[r][s][quad], v.val[0], x[r], kLane);
        acc[r][s][quad + 1] = vfmaq_laneq_f32(acc[r][s][quad + 1], v.val[1], x[r], kLane);
      }
    }
  }
}

// Rows row..row+kRows-1, kStrips strips of 4 * kQuads outputs from `strip`.
template <class Weight, int kRows, int kStrips, int kQuads>
inline void product_tile(const Product<Weight>& p, int row, int64_t strip) {
  float32x4_t acc[kRows][kStrips][kQuads];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float keep = p.keep ? p.keep[row + r] : 0.0f;
    const float* const out = p.out + (row + r) * p.out_stride + 16 * strip;
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 4
      for (int quad = 0; quad < kQuads; ++quad) {
        acc[r][s][quad] = keep == 0.0f ? vdupq_n_f32(0.0f) : vmulq_n_f32(vld1q_f32(out + 16 * s + 4 * quad), keep);
      }
    }
  }
  const typename Weight::Element* w[kStrips];
#pragma GCC unroll 4
  for (int s = 0; s < kStrips; ++s) w[s] = p.w + (strip + s) * p.strip_stride;
  const float* const x = p.x + row * p.x_stride;
  float32x4_t xs[kRows];
  int64_t c = 0;
  for (; c + 4 <= p.columns; c += 4) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) xs[r] = vld1q_f32(x + r * p.x_stride + c);
    add_column<Weight, 0>(w, c * p.w_stride, xs, acc);
    add_column<Weight, 1>(w, (c + 1) * p.w_stride, xs, acc);
    add_column<Weight, 2>(w, (c + 2) * p.w_stride, xs, acc);
    add_column<Weight, 3>(w, (c + 3) * p.w_stride, xs, acc);
  }
  for (; c < p.columns; ++c) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) xs[r] = vdupq_n_f32(x[r * p.x_stride + c]);
    add_column<Weight, 0>(w, c * p.w_stride, xs, acc);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* const out = p.out + (row + r) * p.out_stride + 16 * strip;
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 4
      for (int quad = 0; quad < kQuads; ++quad) vst1q_f32(out + 16 * s + 4 * quad, acc[r][s][quad]);
    }
  }
}

template <class Weight, int kRows>
inline void product_rows(const Product<Weight>& p, int row) {
  constexpr int kStrips = kRows > 2 ? 1 : 2;
  const int64_t strips = p.outputs / 16;
  int64_t s = 0;
  for (; s + kStrips <= strips; s += kStrips) product_tile<Weight, kRows, kStrips, 4>(p, row, s);
  if (s < strips) product_tile<Weight, kRows, 1, 4>(p, row, s);
  if (p.outputs % 16) product_tile<Weight, kRows, 1, 2>(p, row, strips);
}

template <class Weight>
void product(const Product<Weight>& p) {
  int row = 0;
  for (; row + 4 <= p.m; row += 4) product_rows<Weight, 4>(p, row);
  for (; row + 2 <= p.m; row += 2) product_rows<Weight, 2>(p, row);
  if (row < p.m) product_rows<Weight, 1>(p, row);
}

}  // namespace
}  // namespace nanomind
