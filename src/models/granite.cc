// SPDX-License-Identifier: Apache-2.0
// Granite 3 decoder (GGUF archs "granite" and "granitemoe"): as Llama, with factors for the embedding, the scores, what
// layers add, and the logits; the second with a mixture of experts and at times a shared one. IBM Granite 3.0 language
// models, 2024. The file's logit factor divides.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

namespace {

DecoderPlan plan_granite(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.pairs = RopePairs::adjacent};
  plan.parts.routing = read_routing(reader, p, {.normalise = true});
  plan.style.attention_scale = static_cast<float>(reader.number_or("attention.scale", 0.0));
  plan.style.residual_scale = static_cast<float>(reader.number_or("residual_scale", 1.0));
  plan.embedding_scale = static_cast<float>(reader.number_or("embedding_scale", 1.0));
  const double divisor = reader.number_or("logit_scale", 1.0);
  if (divisor <= 0) reader.complain("The logit scale must be positive.");
  plan.logit_scale = static_cast<float>(1.0 / divisor);
  return plan;
}

}  // namespace

Result<Model> build_granite(const GgufFile& file) { return build_decoder(file, "granite", plan_granite); }
Result<Model> build_granitemoe(const GgufFile& file) { return build_decoder(file, "granitemoe", plan_granite); }

}  // namespace nanomind
