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
    {"gemma2", build_gemma2},         {"gemma3", build_gemma3}, {"granite", build_granite},
    {"granitemoe", build_granitemoe}, {"llama", build_llama},   {"phi3", build_phi3},
    {"qwen2", build_qwen2},           {"qwen3", build_qwen3},   {"qwen3moe", build_qwen3moe},
    {"smollm3", build_smollm3},       {"lfm2", build_lfm2},     {"qwen35", build_qwen35},
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
