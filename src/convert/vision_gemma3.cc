// SPDX-License-Identifier: Apache-2.0
// What Gemma 3 sees with (projector "gemma3").
#include <fmt/format.h>

#include <cmath>

#include "convert/vision_family.h"

namespace nanomind {
namespace {

constexpr int64_t kBilinear = 2;
constexpr int64_t kPooled = 4;  // patches of a side, where a file says nothing
constexpr std::string_view kTypes[] = {"gemma3"};
constexpr std::string_view kProjection = "multi_modal_projector.mm_input_projection_weight";
constexpr NameRule kNames[] = {
    {"multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm", Change::plus_one},
    {kProjection, "", Change::leave_out},  // described below
};

// Stored as [states, rows of the language model]: programs turn it around when they load it, so blocks would not help.
Result<OutputTensor> projection(const Checkpoint& checkpoint) {
  for (const auto& [name, source] : checkpoint.weights.tensors()) {
    if (!name.ends_with(kProjection)) continue;
    OutputTensor tensor = TRY(whole_tensor("mm.input_projection.weight", *source));
    tensor.precision = Precision::plain;
    return tensor;
  }
  return fail(ErrorCode::corrupt, "The model has no projection of what it sees.");
}

Result<TowerSettings> describe(const VisionHalf& half, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const TowerSettings tower = TRY(read_tower_settings(half));
  TRY(check_resampling(half, kBilinear));
  keys.add("use_gelu", true);
  const int64_t rows =
      half.checkpoint.whole.integer_or("mm_tokens_per_image", half.pictures.integer_or("image_seq_length", 256));
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(rows))));
  const int64_t patches = tower.patch_size > 0 ? tower.image_size / tower.patch_size : 0;
  if (side * side != rows || side == 0 || patches % side != 0) {
    return fail(ErrorCode::corrupt, fmt::format("{}: a picture of {} x {} patches does not become a square of {} rows.",
                                                half.checkpoint.whole.subject(), patches, patches, rows));
  }
  if (patches / side != kPooled) keys.count("vision.projector.scale_factor", patches / side);
  tensors.push_back(TRY(projection(half.checkpoint)));
  return tower;
}

}  // namespace

const VisionFamily kGemma3Vision{.projector_type = "gemma3",
                                 .model_types = kTypes,
                                 .names = kNames,
                                 .describe = describe,
                                 .filters = Precision::exact,
                                 .class_settings = kSiglipSettings};

}  // namespace nanomind
