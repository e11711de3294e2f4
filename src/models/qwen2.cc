// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 decoder (GGUF arch "qwen2"): as Llama, with biases on q, k and v and half-split rotary pairs.
// Qwen2 report, arXiv 2407.10671.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_qwen2(const GgufFile& file) {
  return build_decoder(file, "qwen2", [](WeightReader&, const DecoderParams&) {
    return DecoderPlan{.theta = 1e6, .parts = {.qkv_bias = true}};
  });
}

}  // namespace nanomind
