// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 decoders (GGUF archs "ernie4_5" and "ernie4_5-moe"): as Llama; the second with dense layers first and then
// a mixture of experts, which a bias helps to choose, and shared ones. ERNIE 4.5 technical report, 2025.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

DecoderPlan plan_ernie(WeightReader& reader, const DecoderParams& p) {
  DecoderPlan plan{.pairs = RopePairs::adjacent, .theta = 500000.0};
  plan.parts.routing = read_routing(reader, p, {.normalise = true});
  return plan;
}

}  // namespace

Result<Model> build_ernie4_5(const GgufFile& file) { return build_decoder(file, "ernie4_5", plan_ernie); }
Result<Model> build_ernie4_5_moe(const GgufFile& file) { return build_decoder(file, "ernie4_5-moe", plan_ernie); }

}  // namespace nanomind
