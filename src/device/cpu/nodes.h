// SPDX-License-Identifier: Apache-2.0
// What the compiler sees of a program: nodes, and which values they read and write.
#pragma once

#include <variant>
#include <vector>

#include "ops/program.h"

namespace nanomind::cpu {

// What becomes one instruction: an operation, all products of one value, or the quantisation of a value for its
// products.
struct Node {
  std::vector<const Op*> ops;    // the program's; none for a quantisation
  ValueId quantizes = kNoValue;  // the value of a quantisation

  // The node's operation, or the first of its products, if it is a T; else null.
  template <typename T>
  const T* get_if() const {
    return ops.empty() ? nullptr : std::get_if<T>(ops[0]);
  }
};

// The values that an operation reads, and the one that it makes or changes.
struct Uses {
  std::vector<ValueId> reads;
  ValueId writes = -1;
};
Uses uses(const Op& op);

}  // namespace nanomind::cpu
