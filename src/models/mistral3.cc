// SPDX-License-Identifier: Apache-2.0
// Ministral 3 and Devstral 2 decoder (GGUF arch "mistral3"): as Llama, with positions stretched by YaRN without its
// attention factor, and queries that grow with the number of original contexts that lie before them.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {

Result<Model> build_mistral3(const GgufFile& file) {
  return build_decoder(
      file, "mistral3", []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
        DecoderPlan plan{.pairs = RopePairs::adjacent, .theta = 1e6};
        plan.parts.routing = read_routing(reader, p, {.normalise = true});
        plan.adapt_rope = [](RotaryPlan& rotary) { rotary.info.magnitude = 1.0F; };
        const double growth = reader.number_or("attention.temperature_scale", 0.0);
        if (growth == 0) return plan;
        const int64_t period = reader.count("rope.scaling.original_context_length", 1, int64_t{1} << 40);
        plan.query_rope = [growth, period](RopeInfo info) {
          info.growth = static_cast<float>(growth);
          info.growth_period = period;
          return info;
        };
        return plan;
      });
}

}  // namespace nanomind
