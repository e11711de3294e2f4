// SPDX-License-Identifier: Apache-2.0
// What a model needs and what this machine has, checked before anything is loaded.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/kv_type.h"
#include "ops/program.h"

namespace nanomind {

struct MemoryNeed {
  uint64_t weight_bytes = 0;  // mapped, so the system may drop and read them again
  uint64_t kv_bytes = 0;      // at the chosen context
  int64_t context = 0;        // tokens
};

// Bytes that the system says are available, less a reserve for everything else (a sixteenth, at least 128 MB): the
// smaller of MemAvailable and what this process's control group leaves.
uint64_t available_memory();

// Bytes of keys and values per token over all layers: a kKvBlockTokens-th of Executable::kv_block_bytes.
uint64_t kv_bytes_per_token(const Program& program, KvType type);

// out_of_memory when the need exceeds the budget; the message has both sums and says which context would fit, if any.
Result<void> check_memory(const MemoryNeed& need, uint64_t budget_bytes);

}  // namespace nanomind
