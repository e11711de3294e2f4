// SPDX-License-Identifier: Apache-2.0
// LLaVA-1.5 (arXiv 2310.03744): a tower, of which often not the last block is read, and two products with a GELU
// between. Files of LLaVA-NeXT and LLaVA-OneVision say besides how a picture becomes several tiles (anyres.h).
#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "media/fit.h"
#include "models/vision/anyres.h"
#include "models/vision/registry.h"
#include "models/vision/tower.h"

namespace nanomind {
namespace {

// CLIP's mean colour, as its processors round it: what pictures that are not square are padded with.
constexpr Rgb kBorder{122, 116, 104};

// LLaVA reads the states before the last block where the file does not say which.
int64_t blocks_read(WeightReader& r, const TowerParams& p) {
  if (!r.has("vision.feature_layer")) return p.blocks - 1;
  const auto layer = static_cast<int64_t>(r.list("vision.feature_layer", GgufType::i32, 1)[0]);
  if (layer < 0 || layer > p.blocks) r.complain("The layer whose states are projected is outside the tower.");
  return layer;
}

// Towers of CLIP (arXiv 2103.00020) have a row of their own before the patches': a stage only embeds then, and the row
// leads the next. Empty for others.
Result<std::vector<float>> record_class_row(const GgufFile& file, VisionModel& model) {
  if (file.tensor("v.class_embd") == nullptr) return std::vector<float>();
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const TowerParams p = read_tower(r, model);
  TRY(r.check());
  const int64_t places = p.side() * p.side() + 1;
  Value x = tower_patches(r, rec, p, places);
  std::vector<float> lead = r.floats_of("v.class_embd", p.width);
  const std::vector<float> positions = r.matrix_floats("v.position_embd", places, p.width);
  TRY(r.check());
  for (size_t i = 0; i < lead.size(); ++i) lead[i] += positions[i];
  x = rec.select_outputs(x);
  model.stages.push_back({.program = std::move(rec).finish(x)});
  return lead;
}

Result<TowerParams> record_tower(const GgufFile& file, VisionModel& model) {
  std::vector<float> lead = TRY(record_class_row(file, model));
  const bool embedded = !lead.empty();
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const TowerParams p = read_tower(r, model);
  const int64_t read = blocks_read(r, p);
  TRY(r.check());
  if (embedded) declare_tower_keys(rec, p);
  Value x = embedded ? rec.input(p.width) : tower_patches(r, rec, p, p.side() * p.side());
  const Norm first = r.has_tensor("v.pre_ln") ? bind_tower_norm(r, "v.pre_ln", p.width) : Norm();
  std::vector<TowerLayer> layers;
  for (int64_t i = 0; i < read; ++i) layers.push_back(bind_tower_layer(r, p, i));
  // The last norm belongs to all blocks together.
  const bool whole = read == p.blocks && r.has_tensor("v.post_ln");
  const Norm last = whole ? bind_tower_norm(r, "v.post_ln", p.width) : Norm();
  TRY(r.check());
  x = apply_norm(rec, first, x, p.eps);
  for (const TowerLayer& w : layers) x = tower_layer(rec, p, w, x);
  x = rec.select_outputs(apply_norm(rec, last, x, p.eps));
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = 1, .lead = std::move(lead)});
  return p;
}

Result<void> record_projector(const GgufFile& file, VisionModel& model, int64_t width) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  model.width = r.tensor_rows("mm.2");
  const GatedFeedForward w = bind_projector(r, "mm.0", "mm.2", width);
  TRY(r.check());
  // The published files do not say which GELU, and their makers' loader takes the one by tanh.
  const bool exact = r.text_or("vision.projector_hidden_act", "gelu_tanh") == "gelu";
  const Value x = project(rec, w, rec.input(width), exact ? Activation::gelu : Activation::gelu_tanh);
  model.stages.push_back({.program = std::move(rec).finish(x)});
  return {};
}

// Whole, with borders.
CutPicture pad(const Image& picture, int side) {
  const Size canvas{side, side};
  const Placement place = place_inside(picture.size, canvas);
  CutPicture cut;
  const double x = static_cast<double>(place.scaled.width) / picture.size.width;
  const double y = static_cast<double>(place.scaled.height) / picture.size.height;
  cut.add_tile(fit_inside(picture, canvas, Filter::bicubic, kBorder),
               {.left = -place.left / x, .top = -place.top / y, .scale_x = x, .scale_y = y});
  return cut;
}

// As processors make it of the means: cut off, not rounded.
Rgb mean_colour(const VisionModel& model) {
  const auto sample = [&](size_t c) { return static_cast<uint8_t>(255 * model.normalization.mean[c]); };
  return {.red = sample(0), .green = sample(1), .blue = sample(2)};
}

// The number at the end of "anyres_max_9".
int tiles_of(std::string_view ratio) {
  const size_t at = ratio.find_last_not_of("0123456789") + 1;
  int tiles = 0;
  std::from_chars(ratio.data() + at, ratio.data() + ratio.size(), tiles);
  return tiles;
}

Result<AnyResolution> read_any_resolution(const GgufFile& file, const TowerParams& p, VisionModel& model) {
  constexpr size_t kMostSizes = 1024;
  AnyResolution any{
      .tile = static_cast<int>(p.image_size), .side = p.side(), .sizes = {}, .most_tiles = 9, .border = {}};
  const GgufArray* sides = TRY(file.get_array("clip.vision.image_grid_pinpoints", GgufType::i32));
  Recorder unused;
  WeightReader r(file, unused, "clip");
  any.most_tiles = tiles_of(r.text_or("vision.image_aspect_ratio", "anyres_max_9"));
  if (any.most_tiles < 1 || any.most_tiles > 64) r.complain("image_aspect_ratio does not say how many tiles are read.");
  if (sides->count % 2 != 0 || sides->count == 0 || sides->count / 2 > kMostSizes)
    r.complain("image_grid_pinpoints are no pairs of sides.");
  for (uint64_t i = 0; !r.failed() && i + 1 < sides->count; i += 2) {
    const int64_t height = sides->integer(i), width = sides->integer(i + 1);
    if (height < 1 || width < 1 || height % any.tile != 0 || width % any.tile != 0 || height > 64 * any.tile ||
        width > 64 * any.tile) {
      r.complain(
          fmt::format("image_grid_pinpoints have {} x {}, which is not made of tiles of {}.", width, height, any.tile));
    } else {
      any.sizes.push_back({static_cast<int>(width), static_cast<int>(height)});
    }
  }
  // Old converters kept the publisher's name.
  const bool old = file.tensor("model.image_newline") != nullptr;
  model.mark = r.floats_of(old ? "model.image_newline" : "v.image_newline", model.width);
  any.border = mean_colour(model);
  TRY(r.check());
  return any;
}

Result<void> choose_cut(const GgufFile& file, const TowerParams& p, VisionModel& model) {
  const auto side = static_cast<int>(p.image_size);
  if (file.find("clip.vision.image_grid_pinpoints") != nullptr) {
    model.cut = [any = TRY(read_any_resolution(file, p, model))](const Image& picture, const PictureDetail& detail) {
      return cut_any_resolution(picture, any, detail);
    };
  } else if (file.get_string("clip.vision.image_aspect_ratio").value_or("") == "pad") {
    model.cut = [side, border = mean_colour(model)](const Image& picture, const PictureDetail&) {
      return cut_square(picture, side, border);
    };
  } else {
    model.cut = [side](const Image& picture, const PictureDetail&) { return pad(picture, side); };
  }
  return {};
}

}  // namespace

Result<VisionModel> build_llava(const GgufFile& file) {
  VisionModel model;
  const TowerParams p = TRY(record_tower(file, model));
  const bool leads = !model.stages.back().lead.empty();
  TRY(record_projector(file, model, p.width));
  TRY(choose_cut(file, p, model));
  model.most_patches = p.side() * p.side();
  model.layout = [leads](PatchGrid grid) {
    TileLayout layout = square_layout(grid, 1);
    if (leads) {
      for (int32_t& place : layout.places) ++place;
      for (int32_t& row : layout.results) ++row;
    }
    return layout;
  };
  return model;
}

}  // namespace nanomind
