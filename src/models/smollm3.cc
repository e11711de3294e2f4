// SPDX-License-Identifier: Apache-2.0
// SmolLM3 decoder (GGUF arch "smollm3"): as Llama, but every fourth layer has no positions (NoPE, arXiv 2501.18795).
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

namespace {

constexpr int64_t kNoRopeEvery = 4;  // layer i has none when (i + 1) % 4 == 0; files do not say

}  // namespace

Result<Model> build_smollm3(const GgufFile& file) {
  return build_decoder(file, "smollm3", [](WeightReader&, const DecoderParams&) {
    DecoderPlan plan{.pairs = RopePairs::adjacent};
    plan.adapt = global_every(kNoRopeEvery, 0);
    return plan;
  });
}

}  // namespace nanomind
