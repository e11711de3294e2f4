// SPDX-License-Identifier: Apache-2.0
// Phi-3, Phi-3.5 and Phi-4 decoder (GGUF arch "phi3"): as Llama, with q, k, v in one matrix and gate, up in another,
// half-split rotary pairs of a part of the head, and LongRoPE. Phi-3 report, arXiv 2404.14219; Phi-4-mini, 2503.01743.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_phi3(const GgufFile& file) {
  return build_decoder(file, "phi3", [](WeightReader& reader, const DecoderParams&) {
    return DecoderPlan{.style = {.window = read_window(reader)}};
  });
}

}  // namespace nanomind
