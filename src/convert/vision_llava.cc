// SPDX-License-Identifier: Apache-2.0
// What LLaVA-OneVision sees with (projector "mlp"). Two of the keys are not llama.cpp's: vision.image_aspect_ratio,
// "anyres_max_N", and vision.projector_hidden_act, "gelu" where the projector's GELU is that by the error function.
#include <fmt/format.h>

#include <charconv>

#include "convert/vision_family.h"

namespace nanomind {
namespace {

constexpr int64_t kBicubic = 3;
constexpr std::string_view kTypes[] = {"llava_onevision"};
constexpr NameRule kNames[] = {
    {"multi_modal_projector.linear_1", "mm.0"},
    {"multi_modal_projector.linear_2", "mm.2"},
    {"image_newline", "v.image_newline"},
};

// How many blocks run before the states that are projected: the last of them as they are, without the tower's norm.
int64_t blocks_read(const VisionHalf& half, int64_t blocks) {
  const std::vector<int64_t> layers = half.checkpoint.whole.integers("vision_feature_layer");
  const int64_t layer = layers.empty() ? -1 : layers.front();
  return layer < 0 ? blocks + 1 + layer : layer;
}

bool is_unused(const VisionHalf& half, std::string_view tensor) {
  constexpr std::string_view kBlock = "v.blk.";
  if (tensor.starts_with("v.post_ln.")) return true;
  if (!tensor.starts_with(kBlock)) return false;
  int64_t block = 0;
  std::from_chars(tensor.data() + kBlock.size(), tensor.data() + tensor.size(), block);
  return block >= blocks_read(half, half.tower.integer_or("num_hidden_layers", 0));
}

Result<void> check_settings(const Config& whole) {
  const std::vector<int64_t> layers = whole.integers("vision_feature_layer");
  if (layers.size() <= 1 && whole.text_or("vision_feature_select_strategy", "full") == "full" &&
      whole.flag_or("multimodal_projector_bias", true)) {
    return {};
  }
  return fail(ErrorCode::unsupported, fmt::format("{} asks for states of several layers, for a part of them or for a "
                                                  "projector without biases, which is not converted.",
                                                  whole.subject()));
}

// Sides of the sizes that pictures are fitted to: height, width, height, width ...
Result<std::vector<int32_t>> read_pinpoints(const VisionHalf& half) {
  constexpr const char* kKey = "image_grid_pinpoints";
  const Json* pairs = half.pictures.find(kKey);
  if (pairs == nullptr) pairs = half.checkpoint.whole.find(kKey);
  std::vector<int32_t> sides;
  for (const Json& pair : pairs != nullptr && pairs->is_array() ? *pairs : Json::array()) {
    for (const Json& side : pair.is_array() ? pair : Json::array()) {
      if (side.is_number_unsigned() && side < 1 << 20) sides.push_back(side.get<int32_t>());
    }
  }
  if (sides.empty() || sides.size() != 2 * pairs->size())
    return fail(ErrorCode::corrupt, fmt::format("{} has no pairs \"{}\".", half.pictures.subject(), kKey));
  return sides;
}

Result<void> add_activation(const Config& whole, FamilyKeys& keys) {
  const std::string name = whole.text_or("projector_hidden_act", "gelu");
  if (name == "gelu")
    keys.add("vision.projector_hidden_act", name);
  else if (name != "gelu_pytorch_tanh")
    return fail(ErrorCode::unsupported,
                fmt::format("{} asks for the activation '{}', which is not converted.", whole.subject(), name));
  return {};
}

Result<TowerSettings> describe(const VisionHalf& half, FamilyKeys& keys, std::vector<OutputTensor>&) {
  const Config& whole = half.checkpoint.whole;
  TowerSettings tower = TRY(read_tower_settings(half));
  TRY(check_resampling(half, kBicubic));
  TRY(check_settings(whole));
  const int64_t blocks = blocks_read(half, tower.blocks);
  if (blocks < 0 || blocks > tower.blocks)
    return fail(ErrorCode::corrupt, fmt::format("{} reads a layer that its tower has not.", whole.subject()));
  tower.blocks = blocks;
  keys.add("has_llava_projector", true);
  keys.add("use_gelu", true);
  keys.add("vision.feature_layer", std::vector<int32_t>{static_cast<int32_t>(blocks)});
  keys.add("vision.image_grid_pinpoints", TRY(read_pinpoints(half)));
  keys.add("vision.mm_patch_merge_type", "spatial_unpad");
  keys.add("vision.image_aspect_ratio", whole.text_or("vision_aspect_ratio", "anyres_max_9"));
  TRY(add_activation(whole, keys));
  return tower;
}

}  // namespace

const VisionFamily kLlavaOnevision{.projector_type = "mlp",
                                   .model_types = kTypes,
                                   .names = kNames,
                                   .describe = describe,
                                   .is_unused = is_unused,
                                   .class_settings = kSiglipSettings};

}  // namespace nanomind
