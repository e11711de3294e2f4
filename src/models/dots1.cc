// SPDX-License-Identifier: Apache-2.0
// dots.llm1 decoder (GGUF arch "dots1"): as Qwen3, with dense layers first and then a mixture of experts by sigmoid
// scores, which a bias helps to choose, and shared ones. arXiv 2506.05767.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_dots1(const GgufFile& file) {
  return build_decoder(file, "dots1",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan{.parts = {.qk_norm = QkNorm::heads}};
                         plan.parts.routing = read_routing(reader, p, {.score = RouterScore::sigmoid});
                         return plan;
                       });
}

}  // namespace nanomind
