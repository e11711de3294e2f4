// SPDX-License-Identifier: Apache-2.0
// Decoders in the line of GPT-2: LayerNorm, biases everywhere, one matrix before the activation and one after. GPT-2
// (GGUF arch "gpt2", Radford et al. 2019) adds a table of positions; GPT-NeoX and Pythia ("gptneox", arXiv 2204.06745)
// rotate a part of each head and have attention and feed-forward side by side; so has Phi-2 ("phi2"), after one norm;
// StarCoder2 ("starcoder2", 2402.19173) is rotated whole; Nemotron and Minitron ("nemotron", 2402.16819) have squared
// ReLU.
#include "models/architectures.h"
#include "models/blocks/plan.h"

namespace nanomind {
namespace {

DecoderPlan plan_gpt(Activation activation) {
  DecoderPlan plan{.parts = {.norm = NormKind::layer, .gated = false}};
  plan.style.activation = activation;
  return plan;
}

}  // namespace

Result<Model> build_gpt2(const GgufFile& file) {
  return build_decoder(file, "gpt2",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan = plan_gpt(Activation::gelu_tanh);
                         plan.has_positions = false;
                         return plan;
                       });
}

Result<Model> build_gptneox(const GgufFile& file) {
  return build_decoder(file, "gptneox",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan = plan_gpt(Activation::gelu);
                         plan.style.parallel = reader.flag_or("use_parallel_residual", true);
                         return plan;
                       });
}

Result<Model> build_phi2(const GgufFile& file) {
  return build_decoder(file, "phi2",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan = plan_gpt(Activation::gelu_tanh);
                         plan.parts.ffn_norm = nullptr;
                         plan.style.parallel = true;
                         return plan;
                       });
}

Result<Model> build_starcoder2(const GgufFile& file) {
  return build_decoder(file, "starcoder2",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         DecoderPlan plan = plan_gpt(Activation::gelu_tanh);
                         plan.style.window = read_window(reader);
                         return plan;
                       });
}

Result<Model> build_nemotron(const GgufFile& file) {
  return build_decoder(file, "nemotron",
                       []([[maybe_unused]] WeightReader& reader, [[maybe_unused]] const DecoderParams& p) {
                         return plan_gpt(Activation::relu_squared);
                       });
}

}  // namespace nanomind
