// SPDX-License-Identifier: Apache-2.0
// What MiniCPM-V 4.6 sees with (projector "minicpmv4_6"). Two of the keys are not llama.cpp's:
// vision.preproc_max_tiles, the most slices of a picture, and vision.use_image_id, whether pictures are numbered.
#include <fmt/format.h>

#include "convert/vision_family.h"

namespace nanomind {
namespace {

constexpr int64_t kBicubic = 3;
constexpr std::string_view kTypes[] = {"minicpmv4_6"};
constexpr NameRule kNames[] = {
    {"vit_merger.layer_norm1", "v.vit_merger.ln1"},
    {"vit_merger.self_attn.q_proj", "v.vit_merger.attn_q"},
    {"vit_merger.self_attn.k_proj", "v.vit_merger.attn_k"},
    {"vit_merger.self_attn.v_proj", "v.vit_merger.attn_v"},
    {"vit_merger.self_attn.out_proj", "v.vit_merger.attn_out"},
    {"vit_merger.pre_norm", "v.vit_merger.ds_ln"},
    {"vit_merger.linear_1", "v.vit_merger.ds_ffn_up"},
    {"vit_merger.linear_2", "v.vit_merger.ds_ffn_down"},
    {"merger.mlp.0.pre_norm", "mm.input_norm"},
    {"merger.mlp.0.linear_1", "mm.up"},
    {"merger.mlp.0.linear_2", "mm.down"},
};

// With "4x" rows are not joined in the middle of the tower.
bool joins_rows(const VisionHalf& half) { return half.pictures.text_or("downsample_mode", "16x") != "4x"; }

bool is_unused(const VisionHalf& half, std::string_view tensor) {
  return tensor.starts_with("v.vit_merger.") && !joins_rows(half);
}

Result<TowerSettings> describe(const VisionHalf& half, FamilyKeys& keys, std::vector<OutputTensor>&) {
  const Config &whole = half.checkpoint.whole, &pictures = half.pictures;
  TowerSettings tower = TRY(read_tower_settings(half));
  TRY(check_resampling(half, kBicubic));
  if (whole.flag_or("drop_vision_last_layer", false)) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} leaves out the tower's last layer, which is not converted.", whole.subject()));
  }
  // The side of what is read at once; the tower's own number belongs to its table of positions.
  tower.image_size = pictures.integer_or("scale_resolution", 448);
  const int64_t after = whole.integer_or("insert_layer_id", half.tower.integer_or("insert_layer_id", 6));
  const bool slices = pictures.flag_or("slice_mode", true);
  keys.add("use_gelu", true);
  keys.count("vision.projector.scale_factor", joins_rows(half) ? 4 : 2);
  keys.add("vision.wa_layer_indexes", std::vector<int32_t>{static_cast<int32_t>(after)});
  keys.count("vision.preproc_max_tiles", slices ? pictures.integer_or("max_slice_nums", 9) : 1);
  keys.add("vision.use_image_id", pictures.flag_or("use_image_id", true));
  return tower;
}

}  // namespace

const VisionFamily kMiniCpmVision{.projector_type = "minicpmv4_6",
                                  .model_types = kTypes,
                                  .names = kNames,
                                  .describe = describe,
                                  .is_unused = is_unused,
                                  .class_settings = kSiglipSettings};

}  // namespace nanomind
