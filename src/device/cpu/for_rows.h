// SPDX-License-Identifier: Apache-2.0
// Loops over the rows of a step that need little work each.
#pragma once

#include <cstdint>

#include "device/cpu/instructions.h"

namespace nanomind::cpu {

// Rows below which starting the pool costs more than it saves.
inline constexpr int64_t kFewRows = 4;

template <typename F>
void for_rows(StepContext& context, int64_t rows, const F& f) {
  if (rows < kFewRows) {
    for (int64_t i = 0; i < rows; ++i) f(i);
  } else {
    context.pool.for_each(rows, f);
  }
}

}  // namespace nanomind::cpu
