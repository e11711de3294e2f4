// SPDX-License-Identifier: Apache-2.0
// Numbers like those of trained matrices, for tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace nanomind {

// Normal, of a deviation of 0.02.
inline std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, 0.02F);
  std::vector<float> out(count);
  for (float& value : out) value = values(random);
  return out;
}

}  // namespace nanomind
