// SPDX-License-Identifier: Apache-2.0
// EXAONE 3 and 4 decoders (GGUF archs "exaone" and "exaone4"). The first is as Llama, with half-split rotary pairs; the
// second has normed heads and norms of what attention and feed-forward give instead of what they read, and in its
// larger size a window in three of four layers and no positions in the fourth. EXAONE 3, arXiv 2408.03541; 4,
// 2507.11407.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

constexpr int64_t kGlobalEvery = 4;  // layer i has neither window nor positions when (i + 1) % 4 == 0

}  // namespace

Result<Model> build_exaone(const GgufFile& file) {
  return build_decoder(
      file, "exaone",
      []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) { return DecoderPlan(); });
}

Result<Model> build_exaone4(const GgufFile& file) {
  return build_decoder(
      file, "exaone4", []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
        DecoderPlan plan{.theta = 1e6, .parts = {.qk_norm = QkNorm::heads, .norms_before = false, .norms_after = true}};
        const int64_t window = read_window(reader);
        if (window > 0) plan.adapt = global_every(kGlobalEvery, window);
        return plan;
      });
}

}  // namespace nanomind
