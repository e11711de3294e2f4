// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 decoder (GGUF archs "qwen2", "qwen2moe" and "qwen2vl"): as Llama, with biases on q, k and v and
// half-split rotary pairs; the second with a mixture of experts whose scores are not normalised, and a gated shared
// one; the third with rotary positions in pictures. Qwen2 report, arXiv 2407.10671; Qwen2-VL, 2409.12191.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

DecoderPlan plan_qwen2(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.theta = 1e6, .parts = {.qkv_bias = true}};
  plan.parts.routing = read_routing(reader, p, {});
  return plan;
}

DecoderPlan plan_qwen2vl(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan = plan_qwen2(reader, p);
  plan.adapt_rope = [&reader](RotaryPlan& rotary) {
    const auto pairs = static_cast<int64_t>(rotary.info.inverse_frequency.size());
    rotary.info.axes = read_rope_axes(reader, RopeSections::in_order, pairs);
  };
  return plan;
}

}  // namespace

Result<Model> build_qwen2vl(const GgufFile& file) { return build_decoder(file, "qwen2vl", plan_qwen2vl); }
Result<Model> build_qwen2(const GgufFile& file) { return build_decoder(file, "qwen2", plan_qwen2); }
Result<Model> build_qwen2moe(const GgufFile& file) { return build_decoder(file, "qwen2moe", plan_qwen2); }

}  // namespace nanomind
