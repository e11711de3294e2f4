// SPDX-License-Identifier: Apache-2.0
// Qwen3 decoder (GGUF archs "qwen3" and "qwen3moe"): as Llama, with normed heads of q and k and half-split rotary
// pairs; the second with a mixture of experts. Qwen3 report, arXiv 2505.09388.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

namespace {

DecoderPlan plan_qwen3(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.theta = 1e6, .parts = {.qk_norm = QkNorm::heads}};
  plan.parts.routing = read_routing(reader, p, {.normalise = true});
  return plan;
}

}  // namespace

Result<Model> build_qwen3(const GgufFile& file) { return build_decoder(file, "qwen3", plan_qwen3); }
Result<Model> build_qwen3moe(const GgufFile& file) { return build_decoder(file, "qwen3moe", plan_qwen3); }

}  // namespace nanomind
