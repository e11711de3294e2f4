// SPDX-License-Identifier: Apache-2.0
// What Idefics3, SmolVLM and SmolVLM2 see with (projector "idefics3").
#include <fmt/format.h>

#include "convert/vision_family.h"

namespace nanomind {
namespace {

constexpr int64_t kLanczos = 1;
constexpr std::string_view kTypes[] = {"idefics3", "smolvlm"};
constexpr NameRule kNames[] = {{"connector.modality_projection.proj", "mm.model.fc"}};

// Tiles have the tower's size, and pictures are always cut: a file cannot say otherwise.
Result<void> check_tiles(const VisionHalf& half, const TowerSettings& tower) {
  const Config& pictures = half.pictures;
  const int64_t tile = pictures.part("max_image_size").integer_or("longest_edge", tower.image_size);
  if (pictures.flag_or("do_image_splitting", true) && tile == tower.image_size) return {};
  return fail(
      ErrorCode::unsupported,
      fmt::format("{} does not cut pictures into tiles of the tower's size, which GGUF files of this kind mean.",
                  pictures.subject()));
}

Result<TowerSettings> describe(const VisionHalf& half, FamilyKeys& keys, std::vector<OutputTensor>&) {
  const TowerSettings tower = TRY(read_tower_settings(half));
  TRY(check_resampling(half, kLanczos));
  TRY(check_tiles(half, tower));
  keys.add("use_gelu", true);
  keys.count("vision.projector.scale_factor", half.checkpoint.whole.integer_or("scale_factor", 2));
  keys.count("vision.preproc_image_size", half.pictures.part("size").integer_or("longest_edge", tower.image_size));
  return tower;
}

}  // namespace

const VisionFamily kIdefics3Vision{
    .projector_type = "idefics3",
    .model_types = kTypes,
    .names = kNames,
    .describe = describe,
    .filters = Precision::exact,
    .class_settings = R"({"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12,
                          "num_attention_heads": 16, "image_size": 224, "patch_size": 32})"};

}  // namespace nanomind
