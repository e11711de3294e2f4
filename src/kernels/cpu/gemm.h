// SPDX-License-Identifier: Apache-2.0
// Products with many activation rows (prompts, pictures): a panel of weights is unpacked once into cache and meets all
// rows, and activations lie in an order that the kernel streams. A kernel chooses both forms for itself: packed
// activations are opaque bytes to everyone else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nanomind {

// Index into the matmul tables.
enum class IntWeight { q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, count };
enum class FloatWeight { f32, f16, bf16, count };

// `out[i * out_stride + 16 * g + r] = sum over c of w[g][r][c] * x[i][c]` for `rows` activation rows (any number above
// 0), `groups` packed row groups that follow each other at `group_bytes`, and `columns` columns of the matrix (not
// padded). All 16 results of a group are written, whatever rows of the matrix exist.
struct GemmArgs {
  const std::byte* weights;
  size_t group_bytes;
  int groups;
  int64_t columns;
  const std::byte* x;  // packed rows, 64-byte aligned; rows not packed are never part of a result
  int64_t rows;
  float* out;
  int64_t out_stride;
  std::byte* scratch;  // scratch_bytes(columns) bytes of the calling thread, 64-byte aligned, unspecified content
};
using Gemm = void (*)(const GemmArgs&);

// All pointers are null where an ISA has nothing better than its matmul of few rows. Else all are set, but for
// `average` and those of multiply_float that an ISA does not have.
struct GemmKernels {
  // Width of a model's residual stream from which the loss of this precision averages out.
  int64_t min_width;

  // Row groups that one call should at least be given to reach full speed.
  int groups_at_once;

  size_t (*packed_bytes)(int64_t rows, int64_t columns);
  size_t (*scratch_bytes)(int64_t columns);

  // Packs columns [begin, begin + n) of row `row` of a matrix of `columns` columns, of which packed_bytes(rows,
  // columns) with rows > row were allocated; `x` points at column `begin`, a multiple of 2048. Whoever packs the last
  // column also pads. Different rows and pieces may be packed at the same time. Non-finite input gives unspecified
  // results.
  void (*pack)(const float* x, int64_t begin, int64_t n, int64_t columns, int64_t row, std::byte* packed);

  // Where multiply_float needs the means of the columns over all `rows` rows, takes those of columns [begin, begin +
  // n), a multiple of 128 of them but for the last, once all rows are packed. Different columns may be taken at the
  // same time. Null: it needs none.
  void (*average)(int64_t rows, int64_t begin, int64_t n, int64_t columns, std::byte* packed) = nullptr;

  Gemm multiply[static_cast<int>(IntWeight::count)];
  Gemm multiply_float[static_cast<int>(FloatWeight::count)];
};

}  // namespace nanomind
