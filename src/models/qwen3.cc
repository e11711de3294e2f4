// SPDX-License-Identifier: Apache-2.0
// Qwen3 decoder (GGUF archs "qwen3", "qwen3moe" and "qwen3vl"): as Llama, with normed heads of q and k and half-split
// rotary pairs; the second with a mixture of experts; the third with rotary positions in pictures, of which its first
// layers read a part of their own ("deepstack", arXiv 2406.04334). Qwen3 report, 2505.09388.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

namespace {

DecoderPlan plan_qwen3(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.theta = 1e6, .parts = {.qk_norm = QkNorm::heads}};
  plan.parts.routing = read_routing(reader, p, {.normalise = true});
  return plan;
}

DecoderPlan plan_qwen3vl(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan = plan_qwen3(reader, p);
  plan.picture_layers = reader.count_or("n_deepstack_layers", 0, 0, p.layers);
  plan.adapt_rope = [&reader](RotaryPlan& rotary) {
    const auto pairs = static_cast<int64_t>(rotary.info.inverse_frequency.size());
    rotary.info.axes = read_rope_axes(reader, RopeSections::in_turns, pairs);
  };
  return plan;
}

}  // namespace

Result<Model> build_qwen3vl(const GgufFile& file) { return build_decoder(file, "qwen3vl", plan_qwen3vl); }
Result<Model> build_qwen3(const GgufFile& file) { return build_decoder(file, "qwen3", plan_qwen3); }
Result<Model> build_qwen3moe(const GgufFile& file) { return build_decoder(file, "qwen3moe", plan_qwen3); }

}  // namespace nanomind
