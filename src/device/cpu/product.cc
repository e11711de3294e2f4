// SPDX-License-Identifier: Apache-2.0
// Matrix products: cuts the row groups of one or several weight matrices into chunks, and runs each chunk over all rows
// of the activations, in tiles that kernels take at once.
#include <algorithm>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

// With few activation rows a chunk is what a thread streams at a go; with many it stays in the second-level cache while
// all activations pass by.
constexpr size_t kChunkBytes = 192 * 1024;
constexpr int64_t kMinGroups = 4;        // kernels stream four row groups side by side
constexpr int64_t kChunksPerThread = 4;  // so that a slow core does not hold up the others

int64_t chunk_groups(const Product& product, int64_t groups_of_step, int threads) {
  const auto by_bytes = static_cast<int64_t>(kChunkBytes / product.group_bytes);
  const int64_t by_balance = groups_of_step / (threads * kChunksPerThread) + 1;
  return std::max(kMinGroups, std::min(by_bytes, by_balance));
}

void add_bias(const Product& product, int64_t first_group, int64_t groups, int64_t row, int64_t rows) {
  const int64_t begin = first_group * kGroupRows;
  const int64_t end = std::min(begin + groups * kGroupRows, product.out.columns);
  for (int64_t i = row; i < row + rows; ++i) {
    float* out = product.out.row(i);
    for (int64_t n = begin; n < end; ++n) out[n] += product.bias[n];
  }
}

void multiply_chunk(const ProductStep& s, const StepContext& context, const Product& product, int64_t first_group,
                    int64_t groups) {
  const int64_t rows = context.rows(s.x.rows);
  const IntMatmul multiply = in_8_bits(context, s.quantized) ? product.multiply8 : product.multiply;
  const std::byte* weights = product.weights.data() + static_cast<size_t>(first_group) * product.group_bytes;
  for (int64_t row = 0; row < rows; row += kMaxTileRows) {
    const int m = static_cast<int>(std::min<int64_t>(kMaxTileRows, rows - row));
    float* out = product.out.row(row) + first_group * kGroupRows;
    if (multiply != nullptr) {
      multiply({.weights = weights,
                .group_bytes = product.group_bytes,
                .groups = static_cast<int>(groups),
                .blocks = product.blocks,
                .x = s.quantized.row(row),
                .x_stride = s.quantized.stride,
                .m = m,
                .out = out,
                .out_stride = product.out.stride});
    } else {
      product.multiply_float({.weights = weights,
                              .group_bytes = product.group_bytes,
                              .groups = static_cast<int>(groups),
                              .columns = s.x.columns,
                              .x = s.x.row(row),
                              .x_stride = s.x.stride,
                              .m = m,
                              .out = out,
                              .out_stride = product.out.stride});
    }
    if (product.bias != nullptr) add_bias(product, first_group, groups, row, m);
  }
}

}  // namespace

void run(const ProductStep& s, StepContext& context) {
  if (context.rows(s.x.rows) == 0) return;
  int64_t all_groups = 0;
  for (const Product& product : s.products) all_groups += product.groups;

  const auto chunks_of = [&](const Product& product) {
    const int64_t size = chunk_groups(product, all_groups, context.pool.threads());
    return (product.groups + size - 1) / size;
  };
  int64_t chunks = 0;
  for (const Product& product : s.products) chunks += chunks_of(product);

  context.pool.for_each(chunks, [&](int64_t chunk) {
    for (const Product& product : s.products) {
      const int64_t count = chunks_of(product);
      if (chunk < count) {
        const int64_t size = chunk_groups(product, all_groups, context.pool.threads());
        const int64_t first = chunk * size;
        multiply_chunk(s, context, product, first, std::min(size, product.groups - first));
        return;
      }
      chunk -= count;
    }
  });
}

}  // namespace nanomind::cpu
