// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (arXiv 2503.19786): the picture squashed to a square, the SigLIP tower, the mean of squares of patches, a
// norm and one product. The rows of a picture see each other in the language model.
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
  check_squares(r, p, side);
  model.width = r.tensor_columns("mm.input_projection");
  const Weight norm = r.vector("mm.soft_emb_norm", p.width);
  const Weight project = r.transposed_matrix("mm.input_projection", model.width, p.width);
  TRY(r.check());
  const Value mean = mean_of_joined(rec, rec.input(pooled * p.width), pooled, p.width);
  const Value x = rec.matmul(rec.select_outputs(rec.rms_norm(mean, norm, p.eps)), project);
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = pooled});
  return side;
}

CutPicture squash(const Image& picture, Size size) {
  CutPicture cut;
  cut.add_text("\n\n<start_of_image>");
  cut.add_tile(resize(picture, size, Filter::bilinear), place_of(picture.size, size, 0, 0));
  cut.add_text("<end_of_image>\n\n");
  return cut;
}

}  // namespace

Result<VisionModel> build_gemma3_vision(const GgufFile& file) {
  VisionModel model;
  const TowerParams p = TRY(record_whole_tower(file, model));
  const int64_t side = TRY(record_projector(file, model, p));
  model.most_patches = p.side() * p.side();
  model.whole = true;
  model.markers = {"<start_of_image>", "<end_of_image>"};
  const auto pixels = static_cast<int>(p.image_size);
  model.cut = [pixels](const Image& picture, const PictureDetail&) { return squash(picture, {pixels, pixels}); };
  model.layout = [side](PatchGrid grid) { return square_layout(grid, side); };
  return model;
}

}  // namespace nanomind
