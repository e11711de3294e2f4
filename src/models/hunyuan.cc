// SPDX-License-Identifier: Apache-2.0
// Hunyuan decoders (GGUF archs "hunyuan-dense" and "hunyuan-moe"): as Llama, with half-split rotary pairs and heads of
// q and k that are normed after their rotation; the second with a mixture of experts and a shared one. Hunyuan-A13B
// technical report, 2025.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

DecoderPlan plan_hunyuan(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.parts = {.qk_norm = QkNorm::heads}};
  plan.parts.routing = read_routing(reader, p, {.normalise = true});
  plan.style.norms_after_rope = true;
  return plan;
}

}  // namespace

Result<Model> build_hunyuan_dense(const GgufFile& file) { return build_decoder(file, "hunyuan-dense", plan_hunyuan); }
Result<Model> build_hunyuan_moe(const GgufFile& file) { return build_decoder(file, "hunyuan-moe", plan_hunyuan); }

}  // namespace nanomind
