// SPDX-License-Identifier: Apache-2.0
// Gemma decoder (GGUF arch "gemma"): as Llama, with half-split rotary pairs, GELU-gated feed-forward and embeddings
// scaled by sqrt(E). Gemma report, arXiv 2403.08295. GGUF files store norm weights with the 1 of "1 + w" already added.
#include <cmath>

#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_gemma(const GgufFile& file) {
  return build_decoder(file, "gemma",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan;
                         plan.embedding_scale = std::sqrt(static_cast<float>(p.width));
                         plan.style.activation = Activation::gelu_tanh;
                         return plan;
                       });
}

}  // namespace nanomind
