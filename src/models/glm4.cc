// SPDX-License-Identifier: Apache-2.0
// GLM-4 decoders (GGUF archs "chatglm" and "glm4"): as Llama, with biases on q, k and v, half of each head rotated,
// gate and up in one matrix; the 0414 models ("glm4") also with norms of what attention and feed-forward give. GLM-4,
// arXiv 2406.12793.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_chatglm(const GgufFile& file) {
  return build_decoder(file, "chatglm",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         return DecoderPlan{.pairs = RopePairs::adjacent};
                       });
}

Result<Model> build_glm4(const GgufFile& file) {
  return build_decoder(file, "glm4",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         return DecoderPlan{.pairs = RopePairs::adjacent, .parts = {.norms_after = true}};
                       });
}

Result<Model> build_glm4moe(const GgufFile& file) {
  return build_decoder(
      file, "glm4moe", []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
        DecoderPlan plan;
        plan.parts.ffn_norm = "post_attention_norm";
        if (reader.has_tensor(block_name(0, "attn_q_norm"))) plan.parts.qk_norm = QkNorm::heads;
        plan.parts.routing = read_routing(reader, p, {.score = RouterScore::sigmoid, .normalise = true});
        return plan;
      });
}

}  // namespace nanomind
