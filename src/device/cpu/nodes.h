// SPDX-License-Identifier: Apache-2.0
// What the compiler sees of a program: nodes, and which values they read and write.
#pragma once

#include <vector>

#include "ops/program.h"

namespace nanomind::cpu {

// Operations that become one instruction: one, or all products of one value.
using Node = std::vector<const Op*>;

// The values that an operation reads, and the one that it makes or changes.
struct Uses {
  std::vector<ValueId> reads;
  ValueId writes = -1;
};
Uses uses(const Op& op);

}  // namespace nanomind::cpu
