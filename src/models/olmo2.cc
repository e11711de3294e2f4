// SPDX-License-Identifier: Apache-2.0
// OLMo 2, OLMo 3 and OLMoE decoders (GGUF archs "olmo2" and "olmoe"): norms over whole rows of q and k. The first have
// norms of what attention and feed-forward give instead of what they read, and OLMo 3 a window in three of four layers,
// whose positions are not stretched; the last has experts. OLMo 2, arXiv 2501.00656; OLMoE, 2409.02060.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

constexpr int64_t kGlobalEvery = 4;  // layer i of OLMo 3 sees everything when (i + 1) % 4 == 0

}  // namespace

Result<Model> build_olmo2(const GgufFile& file) {
  return build_decoder(
      file, "olmo2", []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
        DecoderPlan plan{.parts = {.qk_norm = QkNorm::rows, .norms_before = false, .norms_after = true}};
        const int64_t window = read_window(reader);
        if (window == 0) return plan;
        plan.more_ropes.push_back(rope_table(plan.pairs, reader.number_or("rope.freq_base", plan.theta), p.head_dim));
        plan.adapt = [window](int64_t layer, LayerStyle& style) {
          if ((layer + 1) % kGlobalEvery == 0) return;
          style.window = window;
          ++style.rope;
        };
        return plan;
      });
}

Result<Model> build_olmoe(const GgufFile& file) {
  return build_decoder(file, "olmoe",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan{.parts = {.qk_norm = QkNorm::rows}};
                         plan.parts.routing = read_routing(reader, p, {});
                         return plan;
                       });
}

}  // namespace nanomind
