// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/architectures.h"

namespace nanomind {
namespace {

struct Architecture {
  std::string_view name;
  Result<Model> (*build)(const GgufFile&);
};

constexpr Architecture kArchitectures[] = {
    {"arcee", build_arcee},
    {"bert", build_bert},
    {"chatglm", build_chatglm},
    {"cohere2", build_cohere2},
    {"command-r", build_command_r},
    {"dots1", build_dots1},
    {"ernie4_5", build_ernie4_5},
    {"ernie4_5-moe", build_ernie4_5_moe},
    {"exaone", build_exaone},
    {"exaone4", build_exaone4},
    {"gemma", build_gemma},
    {"gemma2", build_gemma2},
    {"gemma3", build_gemma3},
    {"gemma3n", build_gemma3n},
    {"glm4", build_glm4},
    {"glm4moe", build_glm4moe},
    {"gpt2", build_gpt2},
    {"gptneox", build_gptneox},
    {"granite", build_granite},
    {"granitemoe", build_granitemoe},
    {"hunyuan-dense", build_hunyuan_dense},
    {"hunyuan-moe", build_hunyuan_moe},
    {"internlm2", build_internlm2},
    {"lfm2", build_lfm2},
    {"llama", build_llama},
    {"minicpm", build_minicpm},
    {"mistral3", build_mistral3},
    {"nemotron", build_nemotron},
    {"nomic-bert", build_nomic_bert},
    {"olmo2", build_olmo2},
    {"olmoe", build_olmoe},
    {"phi2", build_phi2},
    {"phi3", build_phi3},
    {"qwen2", build_qwen2},
    {"qwen2moe", build_qwen2moe},
    {"qwen2vl", build_qwen2vl},
    {"qwen3", build_qwen3},
    {"qwen35", build_qwen35},
    {"qwen3moe", build_qwen3moe},
    {"qwen3vl", build_qwen3vl},
    {"seed_oss", build_seed_oss},
    {"smollm3", build_smollm3},
    {"stablelm", build_stablelm},
    {"starcoder2", build_starcoder2},
};

}  // namespace

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) names.emplace_back(a.name);
  return names;
}

Result<Model> build_model(const GgufFile& file) {
  const std::string_view wanted = TRY(file.get_string("general.architecture"));
  for (const Architecture& a : kArchitectures) {
    if (a.name == wanted) return a.build(file);
  }
  return fail(ErrorCode::unsupported, fmt::format("Models of architecture '{}' are not supported yet; known are {}.",
                                                  wanted, fmt::join(architecture_names(), ", ")));
}

void fit_context(Model& model, int64_t context) {
  for (const Model::LongRope& rope : model.long_ropes) {
    if (context > rope.beyond) model.program.ropes[static_cast<size_t>(rope.rope)] = rope.info;
  }
}

}  // namespace nanomind
