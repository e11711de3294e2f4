// SPDX-License-Identifier: Apache-2.0
// Weights as the kernels of few rows take them, and their product with activation rows, tile by tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/table.h"

namespace nanomind::cpu {

// One matrix, or several of one size below each other (experts).
struct WeightMatrix {
  std::span<const std::byte> weights;
  size_t group_bytes;
  int64_t groups;              // of one matrix
  int64_t columns, blocks;     // per group
  IntMatmul multiply;          // either this
  FloatMatmul multiply_float;  // or this

  bool integer() const { return multiply != nullptr; }
  const std::byte* group(int64_t index) const { return weights.data() + static_cast<size_t>(index) * group_bytes; }
};

// How many row groups one task takes of `all` that a step's products have: what a thread streams at a go, which stays
// in the second-level cache while several tiles of rows pass by, and not so many that a slow core holds up the others.
int64_t groups_of_task(size_t group_bytes, int64_t all, int threads);

// Units of an activation row of so many columns, padded for any type of weights.
constexpr int64_t padded_units(int64_t columns) {
  return (columns + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns / kUnitColumns;
}

// Clears what pads a row of `columns` columns to `units` units.
void clear_padding(ActivationUnit* row, int64_t columns, int64_t units);

// Activation rows as a matrix reads them: `units` where it is of integers, else `floats`; `stride` counts these.
struct InputRows {
  const ActivationUnit* units;
  const float* floats;
  int64_t stride;
  int64_t count;
};

// out[i * out_stride + 16 * g + r] for `groups` row groups from `first` on, the latter counted over all matrices.
void multiply_few(const WeightMatrix& w, int64_t first, int64_t groups, const InputRows& x, float* out,
                  int64_t out_stride);

}  // namespace nanomind::cpu
