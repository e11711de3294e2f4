// SPDX-License-Identifier: Apache-2.0
// What a model needs and what this machine has, checked before anything is loaded.
#pragma once

#include <cstdint>
#include <functional>

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

// Matrices that a program's products read, packed, each once. Tables that are only looked up stay on the disk but for
// the rows in use.
uint64_t matrix_bytes(const Program& program);

// Calls f(weight, part, rows) for each matrix that a step multiplies by; of experts only that part which a row chooses.
void for_each_product(const Program& program, const std::function<void(const WeightInfo&, double part, Rows)>& f);

// Bytes of keys and values per token over all layers: a kKvBlockTokens-th of Executable::kv_block_bytes.
uint64_t kv_bytes_per_token(const Program& program, KvType type);

// out_of_memory when the need exceeds the budget; the message has both sums and says which context would fit, if any.
Result<void> check_memory(const MemoryNeed& need, uint64_t budget_bytes);

}  // namespace nanomind
