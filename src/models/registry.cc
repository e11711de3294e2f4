// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/architectures.h"

namespace nanomind {
namespace {

struct Architecture {
  ArchitectureInfo info;
  Result<Model> (*build)(const GgufFile&);
};

constexpr Architecture kArchitectures[] = {
    {{"arcee", "AFM 4.5B", "squared ReLU without a gate"}, build_arcee},
    {{"bert", "BERT encoders and rerankers, MiniLM, BGE, XLM-RoBERTa",
      "an encoder: sees both sides, layer norms after sums, learnt positions, GELU"},
     build_bert},
    {{"chatglm", "GLM-4-9B, ChatGLM3", "biases of q, k and v, half of each head rotated, joined gate and up"},
     build_chatglm},
    {{"cohere2", "Command R7B, Command A, Tiny Aya",
      "LayerNorm, attention beside feed-forward, windows, every fourth layer without positions"},
     build_cohere2},
    {{"command-r", "Command R, Aya", "LayerNorm, attention beside feed-forward, scaled logits"}, build_command_r},
    {{"dots1", "dots.llm1", "as `qwen3`, mixture of experts by sigmoid scores, shared experts"}, build_dots1},
    {{"ernie4_5", "ERNIE 4.5 0.3B", "nothing"}, build_ernie4_5},
    {{"ernie4_5-moe", "ERNIE 4.5 21B-A3B", "mixture of experts after dense layers, shared experts"},
     build_ernie4_5_moe},
    {{"exaone", "EXAONE 3, 3.5", "half-split rotary pairs"}, build_exaone},
    {{"exaone4", "EXAONE 4", "normed heads, norms after instead of before, windows in the 32B"}, build_exaone4},
    {{"gemma", "Gemma, CodeGemma", "GELU, scaled embedding"}, build_gemma},
    {{"gemma2", "Gemma 2", "norms on both sides, capped scores and logits, every other layer with a window, GELU"},
     build_gemma2},
    {{"gemma3", "Gemma 3 (text)", "norms on both sides, normed heads, five of six layers with a window, GELU"},
     build_gemma3},
    {{"gemma3n", "Gemma 3n (text)",
      "several residual streams (AltUp), low-rank residuals (LAuReL), embeddings of each layer, late layers that reuse "
      "keys and values, thresholds in early feed-forwards"},
     build_gemma3n},
    {{"glm4", "GLM-4-0414, GLM-Z1", "as `chatglm`, norms on both sides"}, build_glm4},
    {{"glm4moe", "GLM-4.5-Air",
      "biases, half of each head rotated, mixture of experts by sigmoid scores, shared experts"},
     build_glm4moe},
    {{"gpt2", "GPT-2 and its kin", "table of positions, LayerNorm, biases, GELU without a gate"}, build_gpt2},
    {{"gptneox", "Pythia, GPT-NeoX, Dolly", "LayerNorm, biases, GELU without a gate, attention beside feed-forward"},
     build_gptneox},
    {{"granite", "Granite 3", "factors for embedding, scores, residuals and logits"}, build_granite},
    {{"granitemoe", "Granite 3 MoE", "as `granite`, mixture of experts"}, build_granitemoe},
    {{"hunyuan-dense", "Hunyuan 0.5B to 7B", "heads normed after rotation"}, build_hunyuan_dense},
    {{"hunyuan-moe", "Hunyuan-A13B", "as `hunyuan-dense`, mixture of experts with a shared one"}, build_hunyuan_moe},
    {{"internlm2", "InternLM2, 2.5, 3", "nothing"}, build_internlm2},
    {{"lfm2", "LFM2 (350M to 2.6B)", "gated short convolutions in most layers, normed heads"}, build_lfm2},
    {{"llama", "Llama 2, 3, 3.1, 3.2, Mistral, Mixtral, SmolLM2, TinyLlama, Yi, DeepSeek-R1-Distill-Llama, ...",
      "positions stretched by rope_freqs, linearly or by YaRN; biases; windows; mixtures of experts"},
     build_llama},
    {{"minicpm", "MiniCPM, MiniCPM4", "factors for embedding, residuals and logits; LongRoPE"}, build_minicpm},
    {{"mistral3", "Ministral 3, Devstral 2", "YaRN, queries that grow with the position"}, build_mistral3},
    {{"nemotron", "Nemotron, Minitron", "LayerNorm, squared ReLU without a gate"}, build_nemotron},
    {{"nomic-bert", "Nomic Embed", "as `bert`, rotary positions, SwiGLU"}, build_nomic_bert},
    {{"olmo2", "OLMo 2, OLMo 3", "norms of whole rows of q and k, norms after instead of before; windows in OLMo 3"},
     build_olmo2},
    {{"olmoe", "OLMoE 1B-7B", "norms of whole rows of q and k, mixture of experts"}, build_olmoe},
    {{"phi2", "Phi-1.5, Phi-2", "LayerNorm, biases, GELU without a gate, attention beside feed-forward"}, build_phi2},
    {{"phi3", "Phi-3, Phi-3.5, Phi-4, Phi-4-mini", "joined matrices, LongRoPE, rotation of a part of the head"},
     build_phi3},
    {{"qwen2", "Qwen2, Qwen2.5, QwQ, DeepSeek-R1-Distill-Qwen", "biases of q, k and v"}, build_qwen2},
    {{"qwen2moe", "Qwen1.5-MoE, Qwen2-57B-A14B", "as `qwen2`, mixture of experts with a gated shared one"},
     build_qwen2moe},
    {{"qwen2vl", "Qwen2.5-VL", "as `qwen2`, rotary positions in time and plane"}, build_qwen2vl},
    {{"qwen3", "Qwen3", "normed heads"}, build_qwen3},
    {{"qwen35", "Qwen3.5, the text half of MiniCPM-V 4.6",
      "three layers of gated delta rule for each of attention, whose output is gated"},
     build_qwen35},
    {{"qwen3moe", "Qwen3-30B-A3B, ...", "as `qwen3`, mixture of experts"}, build_qwen3moe},
    {{"qwen3vl", "Qwen3-VL",
      "as `qwen3`, rotary positions in time and plane, further parts of a picture's rows for its first layers"},
     build_qwen3vl},
    {{"seed_oss", "Seed-OSS", "biases of q, k and v"}, build_seed_oss},
    {{"smollm3", "SmolLM3", "every fourth layer without positions"}, build_smollm3},
    {{"stablelm", "StableLM 2", "LayerNorm, a part of each head rotated"}, build_stablelm},
    {{"starcoder2", "StarCoder2", "LayerNorm, biases, GELU without a gate, window"}, build_starcoder2},
};

}  // namespace

std::vector<ArchitectureInfo> architectures() {
  std::vector<ArchitectureInfo> all;
  for (const Architecture& a : kArchitectures) all.push_back(a.info);
  return all;
}

Result<Model> build_model(const GgufFile& file) {
  const std::string_view wanted = TRY(file.get_string("general.architecture"));
  for (const Architecture& a : kArchitectures) {
    if (a.info.name == wanted) return a.build(file);
  }
  std::vector<std::string_view> names;
  for (const Architecture& a : kArchitectures) names.push_back(a.info.name);
  return fail(ErrorCode::unsupported, fmt::format("Models of architecture '{}' are not supported yet; known are {}.",
                                                  wanted, fmt::join(names, ", ")));
}

void fit_context(Model& model, int64_t context) {
  for (const Model::LongRope& rope : model.long_ropes) {
    if (context > rope.beyond) model.program.ropes[static_cast<size_t>(rope.rope)] = rope.info;
  }
}

}  // namespace nanomind
