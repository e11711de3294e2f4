// SPDX-License-Identifier: Apache-2.0
// How far results are from what they should be.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace nanomind::testing {

// Root mean square of the difference as a share of that of the expected values.
inline double relative_difference(std::span<const float> actual, std::span<const float> expected) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    squares += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(squares / size);
}

}  // namespace nanomind::testing
