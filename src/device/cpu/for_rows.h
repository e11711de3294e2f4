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
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  };
  if (rows < kFewRows) return run(0, rows);
  const int64_t step = rows_of_task(rows, context.pool.threads());
  context.pool.for_each((rows + step - 1) / step,
                        [&](int64_t task) { run(task * step, std::min(rows, (task + 1) * step)); });
}

}  // namespace nanomind::cpu
