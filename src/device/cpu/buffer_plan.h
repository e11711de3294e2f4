// SPDX-License-Identifier: Apache-2.0
// Places buffers with known lifetimes into one arena, so that those that are never alive together share bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace nanomind {

// Alive from instruction `first` to instruction `last`, both included.
struct Lifetime {
  size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct BufferPlan {
  std::vector<size_t> offsets;  // parallel to the lifetimes, multiples of 64
  size_t arena_bytes = 0;
};

// Greedy by size, first fit: the largest buffer first, each at the lowest offset that is free during its life.
BufferPlan plan_buffers(std::span<const Lifetime> lifetimes);

}  // namespace nanomind
