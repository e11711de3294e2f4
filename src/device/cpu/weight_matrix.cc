// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/weight_matrix.h"

#include <algorithm>
#include <cstring>

namespace nanomind::cpu {

int64_t groups_of_task(size_t group_bytes, int64_t all, int threads) {
  constexpr size_t kBytes = 192 * 1024;
  constexpr int64_t kLeast = 4, kTasksPerThread = 4;
  const int64_t by_balance = all / (threads * kTasksPerThread) + 1;
  return std::max(kLeast, std::min(static_cast<int64_t>(kBytes / group_bytes), by_balance));
}

void clear_padding(ActivationUnit* row, int64_t columns, int64_t units) {
  const int64_t used = (columns + kUnitColumns - 1) / kUnitColumns;
  std::memset(row + used, 0, static_cast<size_t>(units - used) * sizeof(ActivationUnit));
}

void multiply_few(const WeightMatrix& w, int64_t first, int64_t groups, const InputRows& x, float* out,
                  int64_t out_stride) {
  for (int64_t row = 0; row < x.count; row += kMaxTileRows) {
    const int m = static_cast<int>(std::min<int64_t>(kMaxTileRows, x.count - row));
    if (w.integer()) {
      w.multiply({.weights = w.group(first),
                  .group_bytes = w.group_bytes,
                  .groups = static_cast<int>(groups),
                  .blocks = w.blocks,
                  .x = x.units + row * x.stride,
                  .x_stride = x.stride,
                  .m = m,
                  .out = out + row * out_stride,
                  .out_stride = out_stride});
    } else {
      w.multiply_float({.weights = w.group(first),
                        .group_bytes = w.group_bytes,
                        .groups = static_cast<int>(groups),
                        .columns = w.columns,
                        .x = x.floats + row * x.stride,
                        .x_stride = x.stride,
                        .m = m,
                        .out = out + row * out_stride,
                        .out_stride = out_stride});
    }
  }
}

}  // namespace nanomind::cpu
