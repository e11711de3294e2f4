// SPDX-License-Identifier: Apache-2.0
// Decoders that differ from Llama in a switch or two: InternLM2 and 2.5 (GGUF arch "internlm2", arXiv 2403.17297) in
// nothing; Seed-OSS ("seed_oss") in biases, pairs and a name; AFM of Arcee ("arcee") in a feed-forward of squared ReLU.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_internlm2(const GgufFile& file) {
  return build_decoder(file, "internlm2",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         return DecoderPlan{.pairs = RopePairs::adjacent};
                       });
}

Result<Model> build_seed_oss(const GgufFile& file) {
  return build_decoder(file, "seed_oss",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan{.theta = 1e7};
                         plan.parts.ffn_norm = "post_attention_norm";
                         return plan;
                       });
}

Result<Model> build_arcee(const GgufFile& file) {
  return build_decoder(file, "arcee",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan{.pairs = RopePairs::adjacent, .parts = {.gated = false}};
                         plan.style.activation = Activation::relu_squared;
                         return plan;
                       });
}

}  // namespace nanomind
