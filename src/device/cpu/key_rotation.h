// SPDX-License-Identifier: Apache-2.0
// Turning cached keys to other positions (StreamingLLM, arXiv 2309.17453): which layers' keys carry rotary positions,
// and the turn of one head's keys in one block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/cpu/kv_store.h"
#include "ops/program.h"

namespace nanomind::cpu {

// The rope of each layer's keys, as an index into Program::ropes, or -1 where keys carry no position; parallel to
// Program::kv_layers. `unsupported` with the reason where positions cannot be changed afterwards.
Result<std::vector<int32_t>> key_ropes(const Program& program);

// cos and sin of `by` positions, per pair. Magnitudes are part of the keys already.
struct Turn {
  Turn(const RopeInfo& rope, int64_t by);
  RopePairs pairs;
  std::vector<float> cosine, sine;
};

// Turns the 64 keys of a head back: what was rotated by p positions then is by p - by. Columns beyond the pairs keep
// what they say; where they share scales with turned ones, in new codes.
void turn_keys(const KvStore& store, const Turn& turn, int head_dim, std::byte* keys);

}  // namespace nanomind::cpu
