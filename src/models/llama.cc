// SPDX-License-Identifier: Apache-2.0
// Llama decoder (GGUF arch "llama"): RMSNorm, grouped-query attention with rotary positions, SwiGLU or a mixture of
// such experts. Llama 2 and 3 (arXiv 2307.09288, 2407.21783), Mistral (2310.06825), Mixtral (2401.04088), and all that
// were built like them. GGUF files permute q and k so that rotated pairs are adjacent.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_llama(const GgufFile& file) {
  return build_decoder(file, "llama", [](WeightReader& reader, const DecoderParams& p) {
    DecoderPlan plan{.pairs = RopePairs::adjacent};
    plan.parts.routing = read_routing(reader, p, {.normalise = true});
    plan.style.window = read_window(reader);
    return plan;
  });
}

}  // namespace nanomind
