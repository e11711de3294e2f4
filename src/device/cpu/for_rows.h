// SPDX-License-Identifier: Apache-2.0
// Loops over the rows of a step that need little work each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {

// Rows below which starting the pool costs more than it saves.
inline constexpr int64_t kFewRows = 4;

// Rows of one task: neighbours, as packed activations have several rows in a cache line, for which threads would
// compete, and a multiple of the tiles that they are packed in, if there are enough for all threads to end at about the
// same time.
inline int64_t rows_of_task(int64_t rows, int threads) {
  constexpr int64_t kTile = 6, kMost = 8 * kTile, kTasksPerThread = 4;
  const int64_t share = std::min(kMost, rows / (threads * kTasksPerThread));
  return share < kTile ? 1 : share / kTile * kTile;
}

template <typename F>
void for_rows(StepContext& context, int64_t rows, const F& f) {
  if (rows == 0) return;
  const int64_t step = rows < kFewRows ? rows : rows_of_task(rows, context.pool.threads());
  context.pool.for_each((rows + step - 1) / step, [&](int64_t task) {
    for (int64_t i = task * step; i < std::min(rows, (task + 1) * step); ++i) f(i);
  });
}

}  // namespace nanomind::cpu
