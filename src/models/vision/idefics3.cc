// SPDX-License-Identifier: Apache-2.0
// Idefics3 (arXiv 2408.12637) and SmolVLM (2504.05299): a picture is enlarged or shrunk to a few tiles of the tower's
// size, which are read one by one and then the whole; squares of patches are joined ("pixel shuffle") and projected by
// one product.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "media/resize.h"
#include "models/vision/registry.h"
#include "models/vision/tower.h"

namespace nanomind {
namespace {

constexpr Filter kFilter = Filter::lanczos;
constexpr int kMostSide = 4096;  // whatever the file says

struct Cutting {
  int tile = 0;     // pixels of a side
  int longest = 0;  // of the enlarged picture
};

// The processor computes with Python's floats; these are the same.
int shorter_side(int longer, double ratio) {
  return static_cast<int>(static_cast<double>(longer) / ratio);  // ratio is at least 1
}

// Scaled so that the longer side is `longest`, the other rounded up to an even number.
Size scaled_to_longest(Size size, int longest) {
  const bool wide = size.width >= size.height;
  const double ratio = static_cast<double>(size.width) / size.height;
  int other = wide ? shorter_side(longest, ratio) : static_cast<int>(longest * ratio);
  other = std::max(1, other + other % 2);
  return wide ? Size{longest, other} : Size{other, longest};
}

int round_up(int n, int step) { return (n + step - 1) / step * step; }

// Both sides rounded up to multiples of a tile.
Size whole_tiles(Size size, int tile) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height) {
    const int width = round_up(size.width, tile);
    return {width, round_up(shorter_side(width, ratio), tile)};
  }
  const int height = round_up(size.height, tile);
  return {round_up(static_cast<int>(height * ratio), tile), height};
}

// The sizes that the picture goes through: to the longest side, and to whole tiles.
struct Sizes {
  Size first, tiled;
};
Sizes sizes_of(Size picture, const Cutting& cutting, const PictureDetail& detail) {
  for (int longest = cutting.longest;; longest = std::max(cutting.tile, longest - cutting.tile)) {
    const Size first = scaled_to_longest(picture, longest);
    const Size tiled = whole_tiles(first, cutting.tile);
    const int tiles = tiled.width / cutting.tile * (tiled.height / cutting.tile);
    if (longest <= cutting.tile || !detail.most_tiles || tiles <= *detail.most_tiles) return {first, tiled};
  }
}

CutPicture cut_picture(const Image& picture, const Cutting& cutting, const PictureDetail& detail) {
  const auto [first, tiled] = sizes_of(picture.size, cutting, detail);
  const Image large = resize(resize(picture, first, kFilter), tiled, kFilter);
  const Size tile{cutting.tile, cutting.tile};
  CutPicture cut;
  std::string before;
  if (large.size != tile) {
    for (int row = 0; row * tile.height < large.size.height; ++row) {
      for (int column = 0; column * tile.width < large.size.width; ++column) {
        const int left = column * tile.width, top = row * tile.height;
        cut.add_text(fmt::format("{}<fake_token_around_image><row_{}_col_{}>", before, row + 1, column + 1));
        cut.add_tile(resize_window(large, large.size, {left, top, tile}, kFilter),
                     place_of(picture.size, large.size, left, top));
        before.clear();
      }
      before = "\n";
    }
    before = "\n\n";
  }
  cut.add_text(before + "<fake_token_around_image><global-img>");
  cut.add_tile(resize(large, tile, kFilter), place_of(picture.size, tile, 0, 0));
  cut.add_text("<fake_token_around_image>");
  return cut;
}

// Returns the side of the squares that are joined.
Result<int64_t> record_projector(const GgufFile& file, VisionModel& model, const TowerParams& p) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const int64_t side = r.count("vision.projector.scale_factor", 1, 64);
  check_squares(r, p, side);
  const int64_t merge = side * side;
  model.width = r.tensor_rows("mm.model.fc");
  const Weight project = r.matrix("mm.model.fc", model.width, merge * p.width);
  TRY(r.check());
  const Value x = rec.matmul(rec.select_outputs(rec.input(merge * p.width)), project);
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = merge});
  return side;
}

}  // namespace

Result<VisionModel> build_idefics3(const GgufFile& file) {
  VisionModel model;
  const TowerParams p = TRY(record_whole_tower(file, model));
  const int64_t side = TRY(record_projector(file, model, p));
  Recorder unused;
  WeightReader r(file, unused, "clip");
  const Cutting cutting{
      .tile = static_cast<int>(p.image_size),
      .longest = static_cast<int>(r.count_or("vision.preproc_image_size",
                                             std::min<int64_t>(4 * p.image_size, kMostSide), p.image_size, kMostSide))};
  TRY(r.check());
  model.most_patches = p.side() * p.side();
  model.markers = {"<fake_token_around_image>"};  // the others are not, in the first models
  model.cut = [cutting](const Image& picture, const PictureDetail& detail) {
    return cut_picture(picture, cutting, detail);
  };
  model.layout = [side](PatchGrid grid) { return square_layout(grid, side); };
  return model;
}

}  // namespace nanomind
