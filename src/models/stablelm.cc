// SPDX-License-Identifier: Apache-2.0
// StableLM 2 decoder (GGUF arch "stablelm"): as Llama, with LayerNorm and a part of each head rotated; the 12B has
// attention and feed-forward side by side. Stable LM 2, arXiv 2402.17834.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_stablelm(const GgufFile& file) {
  return build_decoder(file, "stablelm",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan{.parts = {.norm = NormKind::layer}};
                         if (reader.has_tensor(block_name(0, "attn_q_norm")))
                           reader.refuse("StableLM with normed heads is not supported.");
                         if (!reader.has_tensor(block_name(0, "ffn_norm"))) {
                           plan.parts.ffn_norm = nullptr;
                           plan.style.parallel = true;
                         }
                         return plan;
                       });
}

}  // namespace nanomind
