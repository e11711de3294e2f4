// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/buffer_plan.h"

#include <algorithm>
#include <numeric>

namespace nanomind {
namespace {

constexpr size_t kAlignment = 64;
size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

BufferPlan plan_buffers(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  BufferPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> placed;  // ascending by offset
  for (size_t i : order) {
    size_t offset = 0;
    for (size_t j : placed) {
      if (!overlap(lifetimes[i], lifetimes[j])) continue;
      if (offset + align(lifetimes[i].bytes) <= plan.offsets[j]) break;
      offset = std::max(offset, plan.offsets[j] + align(lifetimes[j].bytes));
    }
    plan.offsets[i] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + align(lifetimes[i].bytes));
    const auto place =
        std::upper_bound(placed.begin(), placed.end(), offset, [&](size_t o, size_t j) { return o < plan.offsets[j]; });
    placed.insert(place, i);
  }
  return plan;
}

}  // namespace nanomind
