// SPDX-License-Identifier: Apache-2.0
// Vision models by the type of their projector, as GGUF files name it.
#include "models/vision/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace nanomind {
namespace {

struct Entry {
  std::string_view projector_type;
  Result<VisionModel> (*build)(const GgufFile& file);
};

constexpr Entry kEntries[] = {
    {"mlp", build_llava},
    {"idefics3", build_idefics3},
    {"minicpmv4_6", build_minicpmv4_6},
    {"gemma3", build_gemma3_vision},
    {"qwen2.5vl_merger", build_qwen25_vision},
    {"qwen3vl_merger", build_qwen3_vision},
};

// Files of models that also hear say it for each of the two.
Result<std::string_view> projector_type(const GgufFile& file) {
  const auto own = file.get_string("clip.vision.projector_type");
  return own ? own : file.get_string("clip.projector_type");
}

}  // namespace

Result<VisionModel> build_vision(const GgufFile& file) {
  const auto known_type = projector_type(file);
  const std::string_view architecture = TRY(file.get_string("general.architecture"));
  if (!known_type && architecture != "clip")
    return fail(ErrorCode::invalid_argument, fmt::format("{} is a model of architecture {}, not one that sees (clip).",
                                                         file.subject(), architecture));
  const std::string_view type = TRY(known_type);
  const auto* entry = std::ranges::find(kEntries, type, &Entry::projector_type);
  if (entry == std::end(kEntries)) {
    std::string known;
    for (const Entry& e : kEntries) known += fmt::format("{}{}", known.empty() ? "" : ", ", e.projector_type);
    return fail(ErrorCode::unsupported,
                fmt::format("Projectors of type '{}' are not supported; known are {}.", type, known));
  }
  VisionModel model = TRY(entry->build(file));
  model.projector_type = type;
  return model;
}

}  // namespace nanomind
