// SPDX-License-Identifier: Apache-2.0
// MiniCPM decoder (GGUF arch "minicpm"): as Llama, with factors for the embedding, what layers add, and the logits.
// MiniCPM, arXiv 2404.06395; MiniCPM4, 2506.07900. The file's logit factor divides; old files have none of them.
#include <cmath>

#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_minicpm(const GgufFile& file) {
  return build_decoder(
      file, "minicpm", []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
        DecoderPlan plan{.pairs = RopePairs::adjacent};
        const double usual_residual = 1.4 / std::sqrt(static_cast<double>(p.layers));
        const double divisor = reader.number_or("logit_scale", static_cast<double>(p.width) / 256.0);
        if (divisor <= 0) reader.complain("The logit scale must be positive.");
        plan.embedding_scale = static_cast<float>(reader.number_or("embedding_scale", 12.0));
        plan.style.residual_scale = static_cast<float>(reader.number_or("residual_scale", usual_residual));
        plan.logit_scale = static_cast<float>(1.0 / divisor);
        return plan;
      });
}

}  // namespace nanomind
