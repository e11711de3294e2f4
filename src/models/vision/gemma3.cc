// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (arXiv 2503.19786): the picture squashed to a square, the SigLIP tower, the mean of squares of patches, a
// norm and one product. The rows of a picture see each other in the language model.
#include <fmt/format.h>

#include "media/resize.h"
#include "models/vision/registry.h"
#include "models/vision/tower.h"

namespace nanomind {
namespace {

constexpr int64_t kPoolSide = 4;  // patches, where the file does not say

// Returns the side of the squares that are pooled.
Result<int64_t> record_projector(const GgufFile& file, VisionModel& model, const TowerParams& p) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const int64_t side = r.count_or("vision.projector.scale_factor", kPoolSide, 1, 64), pooled = side * side;
  if (p.image_size % p.patch_size != 0 || p.side() % side != 0)
    r.complain(fmt::format("{} patches of a side do not divide into squares of {}.", p.side(), side));
  model.width = r.tensor_columns("mm.input_projection");
  const Weight norm = r.vector("mm.soft_emb_norm", p.width);
  const Weight project = r.transposed_matrix("mm.input_projection", model.width, p.width);
  TRY(r.check());
  const Value patches = rec.input(pooled * p.width);
  Value sum = rec.columns(patches, 0, p.width);
  for (int64_t i = 1; i < pooled; ++i) sum = rec.add(sum, rec.columns(patches, i * p.width, p.width));
  const Value mean = rec.scale(sum, 1.0F / static_cast<float>(pooled));
  const Value x = rec.matmul(rec.select_outputs(rec.rms_norm(mean, norm, p.eps)), project);
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = pooled});
  return side;
}

CutPicture squash(const Image& picture, Size size) {
  CutPicture cut;
  cut.tiles.push_back(resize(picture, size, Filter::bilinear));
  cut.places.push_back(place_of(picture.size, size, 0, 0));
  cut.parts.push_back({.text = "\n\n<start_of_image>", .tile = -1, .blended = {}});
  cut.parts.push_back({.text = {}, .tile = 0, .blended = {}});
  cut.parts.push_back({.text = "<end_of_image>\n\n", .tile = -1, .blended = {}});
  return cut;
}

}  // namespace

Result<VisionModel> build_gemma3_vision(const GgufFile& file) {
  VisionModel model;
  const TowerParams p = TRY(record_whole_tower(file, model));
  const int64_t side = TRY(record_projector(file, model, p));
  model.most_patches = p.side() * p.side();
  model.whole = true;
  const auto pixels = static_cast<int>(p.image_size);
  model.cut = [pixels](const Image& picture, const PictureDetail&) { return squash(picture, {pixels, pixels}); };
  model.layout = [side](PatchGrid grid) { return square_layout(grid, side); };
  return model;
}

}  // namespace nanomind
