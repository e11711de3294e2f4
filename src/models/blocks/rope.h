// SPDX-License-Identifier: Apache-2.0
// Rotary positions as GGUF files describe them: base, rotated width, and how they were stretched for long contexts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/weights.h"
#include "ops/program.h"

namespace nanomind {

struct RotaryPlan {
  RopeInfo info;
  std::optional<RopeInfo> long_info;  // for contexts of more than `beyond` tokens
  int64_t beyond = 0;
};

// Reads rope.freq_base (`theta` where the file has none), rope.dimension_count (`rotated` where it has none), and what
// stretches: none; linear (arXiv 2306.15595); YaRN (2309.00071); factors of each pair's wavelength in tensor rope_freqs
// (Llama 3.1); LongRoPE (2402.13753), whose tensors rope_factors_long and _short are for contexts beyond and within the
// original one. `trained_context` is what the model was finally trained for.
struct RotaryDefaults {
  RopePairs pairs = RopePairs::halves;
  double theta = 10000.0;
  int64_t rotated = 0;
  int64_t head_dim = 0;
  int64_t trained_context = 0;
};
RotaryPlan read_rotary(WeightReader& reader, const RotaryDefaults& defaults);

// The axes of M-RoPE (arXiv 2409.12191) by key rope.dimension_sections, which says how many pairs turn by time, height
// and width: one section after another, or in turns as long as sections last (Qwen3-VL), the rest by time.
enum class RopeSections : uint8_t { in_order, in_turns };
std::vector<uint8_t> read_rope_axes(WeightReader& reader, RopeSections sections, int64_t pairs);

// theta^(-2i/rotated) for i < rotated / 2, in double and then rounded.
RopeInfo rope_table(RopePairs pairs, double theta, int64_t rotated);

}  // namespace nanomind
