// SPDX-License-Identifier: Apache-2.0
// Command R and R7B, Aya decoders (GGUF archs "command-r" and "cohere2"): LayerNorm without bias, attention and
// feed-forward side by side, scaled logits; the second with a window in three of four layers and no positions in the
// fourth. Cohere, Command A, arXiv 2504.00698.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

constexpr int64_t kGlobalEvery = 4;  // layer i of cohere2 has neither window nor positions when (i + 1) % 4 == 0

DecoderPlan plan_cohere(WeightReader& reader) {
  DecoderPlan plan{.pairs = RopePairs::adjacent, .parts = {.norm = NormKind::layer, .ffn_norm = nullptr}};
  plan.style.parallel = true;
  plan.logit_scale = static_cast<float>(reader.number("logit_scale"));
  return plan;
}

}  // namespace

Result<Model> build_command_r(const GgufFile& file) {
  return build_decoder(file, "command-r",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         if (reader.has_tensor(block_name(0, "attn_q_norm")))
                           reader.refuse("Command R+ with norms of single heads is not supported.");
                         return plan_cohere(reader);
                       });
}

Result<Model> build_cohere2(const GgufFile& file) {
  return build_decoder(file, "cohere2",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan = plan_cohere(reader);
                         plan.adapt = global_every(kGlobalEvery, read_window(reader));
                         return plan;
                       });
}

}  // namespace nanomind
