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
    {"gemma3", build_gemma3},
    {"llama", build_llama},
    {"qwen2", build_qwen2},
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

}  // namespace nanomind
