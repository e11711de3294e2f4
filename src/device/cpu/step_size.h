// SPDX-License-Identifier: Apache-2.0
// How many tokens of a prompt to read in one step.
#pragma once

#include <cstdint>

#include "ops/program.h"

namespace nanomind::cpu {

// Each panel of weights meets the packed activations of all tokens of the step, so these should stay in the largest
// cache, of which they are given half: the more tokens, the more often an unpacked weight is used, and beyond
// kMostStepTokens that gains nothing more. A multiple of 16, 64 to 256. `cache_bytes` 0: unknown.
int64_t step_tokens(const Program& program, uint64_t cache_bytes);

}  // namespace nanomind::cpu
