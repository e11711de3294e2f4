// SPDX-License-Identifier: Apache-2.0
// Hunyuan dense decoder (GGUF arch "hunyuan-dense"): as Llama, with half-split rotary pairs and heads of q and k that
// are normed after their rotation.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_hunyuan_dense(const GgufFile& file) {
  return build_decoder(file, "hunyuan-dense",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan{.parts = {.qk_norm = QkNorm::heads}};
                         plan.style.norms_after_rope = true;
                         return plan;
                       });
}

}  // namespace nanomind
