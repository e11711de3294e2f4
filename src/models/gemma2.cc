// SPDX-License-Identifier: Apache-2.0
// Gemma 2 decoder (GGUF arch "gemma2"): norms before and after attention and feed-forward, every other layer with a
// sliding window, capped scores and logits, GELU-gated feed-forward, embeddings scaled by sqrt(E). Gemma 2 report,
// arXiv 2408.00118. GGUF files store norm weights with the 1 of "1 + w" already added.
#include <cmath>

#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

namespace {

constexpr int64_t kLayersOf27B = 46;  // whose queries are scaled by the width of the model, not of the head

}  // namespace

Result<Model> build_gemma2(const GgufFile& file) {
  return build_decoder(file, "gemma2", [](WeightReader& reader, const DecoderParams& p) {
    DecoderPlan plan{.parts = {.norms_after = true}};
    plan.embedding_scale = std::sqrt(static_cast<float>(p.width));
    plan.logit_cap = static_cast<float>(reader.number_or("final_logit_softcapping", 30.0));
    plan.style.activation = Activation::gelu_tanh;
    plan.style.attention_cap = static_cast<float>(reader.number_or("attn_logit_softcapping", 50.0));
    if (p.layers == kLayersOf27B) {
      plan.style.attention_scale = 1.0F / std::sqrt(static_cast<float>(p.width) / static_cast<float>(p.heads));
    }
    const int64_t window = reader.count_or("attention.sliding_window", 4096, 0, int64_t{1} << 40);
    plan.adapt = [window](int64_t layer, LayerStyle& style) { style.window = layer % 2 == 0 ? window : 0; };
    return plan;
  });
}

}  // namespace nanomind
