// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 decoder (GGUF archs "qwen2" and "qwen2moe"): as Llama, with biases on q, k and v and half-split
// rotary pairs; the second with a mixture of experts whose scores are not normalised, and a gated shared one. Qwen2
// report, arXiv 2407.10671.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

DecoderPlan plan_qwen2(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.theta = 1e6, .parts = {.qkv_bias = true}};
  plan.parts.routing = read_routing(reader, p, {});
  return plan;
}

}  // namespace

Result<Model> build_qwen2(const GgufFile& file) { return build_decoder(file, "qwen2", plan_qwen2); }
Result<Model> build_qwen2moe(const GgufFile& file) { return build_decoder(file, "qwen2moe", plan_qwen2); }

}  // namespace nanomind
