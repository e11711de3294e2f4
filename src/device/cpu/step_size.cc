// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/step_size.h"

#include <algorithm>

namespace nanomind::cpu {
namespace {

constexpr int64_t kLeastStepTokens = 64, kMostStepTokens = 256;
constexpr int64_t kTileTokens = 16;
constexpr int64_t kBytesPerColumn = 2;  // of packed activations, at most (gemm.h)

}  // namespace

int64_t step_tokens(const Program& program, uint64_t cache_bytes) {
  int64_t widest = 1;
  for (const Op& op : program.ops) {
    if (const auto* product = std::get_if<op::MatMul>(&op))
      widest = std::max(widest, program.values[static_cast<size_t>(product->x)].columns);
  }
  if (cache_bytes == 0) return kMostStepTokens;
  const int64_t fitting = static_cast<int64_t>(cache_bytes / 2) / (widest * kBytesPerColumn);
  return std::clamp(fitting / kTileTokens * kTileTokens, kLeastStepTokens, kMostStepTokens);
}

}  // namespace nanomind::cpu
