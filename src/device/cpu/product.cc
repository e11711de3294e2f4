// SPDX-License-Identifier: Apache-2.0
// Matrix products: cuts the row groups of one or several weight matrices into chunks, and runs each chunk over all rows
// of the activations: few in tiles that kernels take at once, many in one call.
#include <algorithm>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {
namespace {

constexpr int64_t kPanelsPerThread = 64;   // so that a slow core does not hold up the others
constexpr int64_t kAveragedColumns = 128;  // of one task

// How one step runs its products.
struct Plan {
  const GemmKernels* many;  // what the value is packed by; null: by nothing
  int64_t rows;
  int64_t groups;  // of all products
  int threads;

  // Float weights that GemmKernels do not take read the floats of many rows too.
  bool in_one_call(const Product& product) const { return many != nullptr && product.multiply_many != nullptr; }

  // Row groups of one chunk of a product.
  int64_t chunk_groups(const Product& product) const {
    if (in_one_call(product)) {
      const int64_t step = many->groups_at_once, by_balance = groups / (threads * kPanelsPerThread);
      return std::max<int64_t>(1, by_balance / step) * step;
    }
    return groups_of_task(product.w.group_bytes, groups, threads);
  }
  int64_t chunks(const Product& product) const {
    const int64_t size = chunk_groups(product);
    return (product.w.groups + size - 1) / size;
  }
};

// Groups of one product.
struct Chunk {
  const Product& product;
  int64_t first, groups;
  float* out(int64_t row) const { return product.out.row(row) + first * kGroupRows; }
};

void add_bias(const Chunk& c, int64_t rows) {
  const int64_t begin = c.first * kGroupRows;
  const int64_t end = std::min(begin + c.groups * kGroupRows, c.product.out.columns);
  for (int64_t i = 0; i < rows; ++i) {
    float* out = c.product.out.row(i);
    for (int64_t n = begin; n < end; ++n) out[n] += c.product.bias[n];
  }
}

void multiply_many(const ProductStep& s, const Plan& plan, const Chunk& c, std::byte* scratch) {
  c.product.multiply_many({.weights = c.product.w.group(c.first),
                           .group_bytes = c.product.w.group_bytes,
                           .groups = static_cast<int>(c.groups),
                           .columns = s.x.columns,
                           .x = s.quantized.data,
                           .rows = plan.rows,
                           .out = c.out(0),
                           .out_stride = c.product.out.stride,
                           .scratch = scratch});
}

void average(const ProductStep& s, const Plan& plan, ThreadPool& pool) {
  if (plan.many == nullptr || plan.many->average == nullptr) return;
  if (std::ranges::none_of(s.products, [&](const Product& p) { return !p.w.integer() && plan.in_one_call(p); })) return;
  const int64_t columns = s.x.columns;
  pool.for_each((columns + kAveragedColumns - 1) / kAveragedColumns, [&](int64_t task) {
    const int64_t begin = task * kAveragedColumns, n = std::min(kAveragedColumns, columns - begin);
    plan.many->average(plan.rows, begin, n, columns, s.quantized.data);
  });
}

}  // namespace

void run(const ProductStep& s, StepContext& context) {
  const int64_t rows = context.rows(s.x.rows);
  if (rows == 0) return;
  Plan plan{.many = s.quantized.packed_by(rows), .rows = rows, .groups = 0, .threads = context.pool.threads()};
  int64_t chunks = 0;
  for (const Product& product : s.products) plan.groups += product.w.groups;
  for (const Product& product : s.products) chunks += plan.chunks(product);
  const auto rows_for = [&](const WeightMatrix& w) {
    return InputRows{.units = w.integer() ? s.quantized.row(0) : nullptr,
                     .floats = s.x.data,
                     .stride = w.integer() ? s.quantized.stride : s.x.stride,
                     .count = rows};
  };
  average(s, plan, context.pool);
  const size_t scratch_bytes = context.scratch.size() / static_cast<size_t>(plan.threads);

  context.pool.for_each(chunks, [&](int64_t index, int thread) {
    for (const Product& product : s.products) {
      const int64_t count = plan.chunks(product);
      if (index >= count) {
        index -= count;
        continue;
      }
      const int64_t size = plan.chunk_groups(product), first = index * size;
      const Chunk chunk{product, first, std::min(size, product.w.groups - first)};
      if (plan.in_one_call(product))
        multiply_many(s, plan, chunk, context.scratch.data() + static_cast<size_t>(thread) * scratch_bytes);
      else
        multiply_few(product.w, first, chunk.groups, rows_for(product.w), chunk.out(0), product.out.stride);
      if (product.bias != nullptr) add_bias(chunk, rows);
      return;
    }
  });
}

}  // namespace nanomind::cpu
