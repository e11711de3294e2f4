// SPDX-License-Identifier: Apache-2.0
// MiniCPM-V 4.6 (transformers `minicpmv4_6`): the whole picture and, of large ones, slices of it, each at its own
// shape; in the middle of the tower windows of 2 x 2 patches become one row, and the projector joins 2 x 2 of those.
// Files without the window merger keep four times as many rows ("4x").
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "media/resize.h"
#include "models/vision/registry.h"
#include "models/vision/tower.h"

namespace nanomind {
namespace {

constexpr int64_t kWindowSide = 2;  // patches
constexpr int64_t kWindow = kWindowSide * kWindowSide;
constexpr int kMostSlices = 9;  // of the published model
constexpr Filter kFilter = Filter::bicubic;

struct Slicing {
  int scale = 0;    // side of a square of the area that a slice has
  int divisor = 0;  // of the sides of slices: pixels of a patch times those joined
  int patch = 0;
  int most = kMostSlices;
  bool numbered = true;  // <image_id>
  int64_t most_patches() const { return 2 * int64_t{scale / patch} * (scale / patch); }
};

// As Python rounds: halves to the even neighbour.
int round_to(double length, int divisor) {
  return std::max(static_cast<int>(std::nearbyint(length / divisor)) * divisor, divisor);
}

enum class Enlarge : uint8_t { no, yes };

// The size of a slice: about scale^2 pixels where the picture has more, or is to be enlarged.
Size slice_size(Size size, const Slicing& s, Enlarge enlarge) {
  double width = size.width, height = size.height;
  if (enlarge == Enlarge::yes || width * height > double{1} * s.scale * s.scale) {
    const double ratio = width / height;
    height = std::floor(s.scale / std::sqrt(ratio));
    width = std::floor(height * ratio);
  }
  Size result{round_to(width, s.divisor), round_to(height, s.divisor)};
  // A picture like a thread would become a thread of any length.
  const auto most = static_cast<int>(s.most_patches() * s.patch * s.patch / std::min(result.width, result.height));
  int& longer = result.width > result.height ? result.width : result.height;
  longer = std::min(longer, most / s.divisor * s.divisor);
  return result;
}

struct SliceGrid {
  int rows = 0, columns = 0;
};

// How many slices: as many as the picture has of the trained area, in the grid whose shape is nearest. None where the
// whole is enough.
SliceGrid slice_grid(Size size, const Slicing& s) {
  const double ratio = static_cast<double>(size.width) * size.height / (double{1} * s.scale * s.scale);
  const int wanted = static_cast<int>(std::min<double>(std::ceil(ratio), s.most));
  if (wanted <= 1) return {};
  const double shape = std::log(static_cast<double>(size.width) / size.height);
  SliceGrid best{1, 1};
  double least = INFINITY;
  for (int slices = wanted - 1; slices <= wanted + 1; ++slices) {
    if (slices == 1 || slices > s.most) continue;
    for (int rows = 1; rows <= slices; ++rows) {
      if (slices % rows != 0) continue;
      const double error = std::abs(shape - std::log(static_cast<double>(slices / rows) / rows));
      if (error > least || (error == least && rows <= best.rows)) continue;
      best = {rows, slices / rows};
      least = error;
    }
  }
  return best;
}

class Cutter {
 public:
  Cutter(const Image& picture, const Slicing& slicing) : picture_(picture), s_(slicing) {}

  CutPicture cut() && {
    const SliceGrid grid = slice_grid(picture_.size, s_);
    const bool sliced = grid.rows > 0;
    const std::string number = s_.numbered ? fmt::format("<image_id>{}</image_id>", kPictureNumber) : "";
    const Size whole = slice_size(picture_.size, s_, sliced ? Enlarge::no : Enlarge::yes);
    add(number + "<image>", resize(picture_, whole, kFilter), "</image>", place_of(picture_.size, whole, 0, 0));
    if (sliced) add_slices(grid);
    return std::move(cut_);
  }

 private:
  void add_slices(SliceGrid grid) {
    const Size rounded{round_to(picture_.size.width, grid.columns), round_to(picture_.size.height, grid.rows)};
    const Size slice = slice_size({rounded.width / grid.columns, rounded.height / grid.rows}, s_, Enlarge::yes);
    const Size large{slice.width * grid.columns, slice.height * grid.rows};
    for (int row = 0; row < grid.rows; ++row) {
      for (int column = 0; column < grid.columns; ++column) {
        const int left = column * slice.width, top = row * slice.height;
        add(row > 0 && column == 0 ? "\n<slice>" : "<slice>",
            resize_window(picture_, large, {left, top, slice}, kFilter), "</slice>",
            place_of(picture_.size, large, left, top));
      }
    }
  }
  void add(std::string before, Image tile, std::string after, const TilePlace& place) {
    cut_.add_text(std::move(before));
    cut_.add_tile(std::move(tile), place);
    cut_.add_text(std::move(after));
  }

  const Image& picture_;
  const Slicing& s_;
  CutPicture cut_;
};

struct Tower {
  TowerParams params;
  int64_t merge_after = -1;    // block after which windows become one row; below 0: they do not
  int64_t positions_side = 0;  // of the table of positions
};

Tower read(WeightReader& r, VisionModel& model) {
  Tower t{.params = read_tower(r, model)};
  if (r.has_tensor("v.vit_merger.ln1"))
    t.merge_after = static_cast<int64_t>(r.list("vision.wa_layer_indexes", GgufType::i32, 1)[0]);
  if (t.merge_after >= t.params.blocks) r.complain("Windows are merged after a block that is not there.");
  t.positions_side = positions_side(r);
  return t;
}

// Blocks [first, end) of the tower.
Value blocks(WeightReader& r, Recorder& rec, const TowerParams& p, int64_t first, int64_t end, Value x) {
  for (int64_t i = first; i < end; ++i) x = tower_layer(rec, p, bind_tower_layer(r, p, i), x);
  return x;
}

Value finish_tower(WeightReader& r, Recorder& rec, const TowerParams& p, Value x) {
  return rec.select_outputs(apply_norm(rec, bind_tower_norm(r, "v.post_ln", p.width), x, p.eps));
}

// Patches to the window merger's attention, or to the end where there is none.
Result<Tower> record_first(const GgufFile& file, VisionModel& model) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const Tower t = read(r, model);
  const TowerParams& p = t.params;
  TRY(r.check());
  const bool merges = t.merge_after >= 0;
  Value x = tower_patches(r, rec, p, t.positions_side * t.positions_side);
  x = blocks(r, rec, p, 0, merges ? t.merge_after + 1 : p.blocks, x);
  if (merges) {
    const Norm norm = bind_tower_norm(r, "v.vit_merger.ln1", p.width);
    const SelfAttention w = bind_tower_attention(r, p, "v.vit_merger.");
    TRY(r.check());
    x = rec.select_outputs(rec.add(x, tower_attention(rec, p, w, apply_norm(rec, norm, x, p.eps), Mask::group)));
  } else {
    x = finish_tower(r, rec, p, x);
    TRY(r.check());
  }
  model.stages.push_back({.program = std::move(rec).finish(x)});
  return t;
}

// Four patches to one row, and the other blocks.
Result<void> record_second(const GgufFile& file, VisionModel& model, const Tower& t) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const TowerParams& p = t.params;
  declare_tower_keys(rec, p);
  const int64_t joined = kWindow * p.width;
  const Norm norm = bind_tower_norm(r, "v.vit_merger.ds_ln", joined);
  const GatedFeedForward w = bind_projector(r, "v.vit_merger.ds_ffn_up", "v.vit_merger.ds_ffn_down", joined);
  if (r.tensor_rows("v.vit_merger.ds_ffn_down") != p.width)
    r.complain("Windows do not become rows of the tower's width.");
  TRY(r.check());
  const Value patches = rec.input(joined);
  const Value merged = feed_forward(rec, w, apply_norm(rec, norm, patches, p.eps), Activation::gelu_tanh);
  Value x = rec.add(merged, mean_of_joined(rec, patches, kWindow, p.width));
  x = finish_tower(r, rec, p, blocks(r, rec, p, t.merge_after + 1, p.blocks, x));
  TRY(r.check());
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = kWindow});
  return {};
}

Result<void> record_projector(const GgufFile& file, VisionModel& model, const TowerParams& p) {
  constexpr float kEps = 1e-6F;
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const int64_t joined = kWindow * p.width;
  model.width = r.tensor_rows("mm.down");
  const Norm norm = bind_tower_norm(r, "mm.input_norm", joined);
  const GatedFeedForward w = bind_projector(r, "mm.up", "mm.down", joined);
  TRY(r.check());
  const Value x = project(rec, w, apply_norm(rec, norm, rec.input(joined), kEps), Activation::gelu);
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = kWindow});
  return {};
}

TileLayout layout(PatchGrid grid, const Tower& t) {
  const bool merges = t.merge_after >= 0;
  const std::vector<int64_t> sides(merges ? 2 : 1, kWindowSide);
  TileLayout layout = square_layout(grid, sides);
  // The table is stretched over whatever shape the tile has.
  for (int32_t& place : layout.places) {
    const int64_t row = place / grid.columns, column = place % grid.columns, side = t.positions_side;
    place = static_cast<int32_t>(side * row / grid.rows * side + side * column / grid.columns);
  }
  if (merges) layout.windows.assign(layout.patches.size() / kWindow, kWindow);
  return layout;
}

}  // namespace

Result<VisionModel> build_minicpmv4_6(const GgufFile& file) {
  VisionModel model;
  const Tower t = TRY(record_first(file, model));
  const TowerParams& p = t.params;
  if (t.merge_after >= 0) TRY(record_second(file, model, t));
  TRY(record_projector(file, model, p));
  Recorder unused;
  WeightReader r(file, unused, "clip");
  const int64_t joined = t.merge_after >= 0 ? kWindowSide * kWindowSide : kWindowSide;
  const Slicing slicing{.scale = static_cast<int>(p.image_size),
                        .divisor = static_cast<int>(p.patch_size * joined),
                        .patch = static_cast<int>(p.patch_size),
                        .most = static_cast<int>(r.count_or("vision.preproc_max_tiles", kMostSlices, 1, 64)),
                        .numbered = r.flag_or("vision.use_image_id", true)};
  TRY(r.check());
  model.most_patches = slicing.most_patches();
  model.markers = {"<image>", "</image>", "<slice>", "</slice>"};
  model.cut = [slicing](const Image& picture, const PictureDetail& detail) {
    Slicing chosen = slicing;
    if (detail.most_tiles) chosen.most = std::min(chosen.most, *detail.most_tiles);
    return Cutter(picture, chosen).cut();
  };
  model.layout = [t](PatchGrid grid) { return layout(grid, t); };
  return model;
}

}  // namespace nanomind
