// SPDX-License-Identifier: Apache-2.0
// What towers share: the parameters in their files, and the blocks of SigLIP (arXiv 2303.15343; a ViT without class
// token, whose blocks begin with their norms).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/blocks/decoder.h"
#include "models/blocks/layer.h"
#include "models/vision.h"
#include "models/weights.h"
#include "ops/recorder.h"

namespace nanomind {

struct TowerParams {
  int64_t image_size = 0, patch_size = 0;  // pixels of a side
  int64_t blocks = 0;                      // that the file has
  int64_t width = 0, feed_forward = 0, heads = 0;
  float eps = 0;
  Activation activation = Activation::gelu;
  NormKind norm = NormKind::layer;
  int rope = kNoRope;  // of queries and keys

  int64_t side() const { return image_size / patch_size; }  // patches
  int64_t head_dim() const { return width / heads; }
};

// Keys clip.vision.*; also fills in what `model` has of them.
TowerParams read_tower(WeightReader& reader, VisionModel& model);

// A LayerNorm's bias must be there.
Norm bind_tower_norm(WeightReader& reader, const std::string& name, int64_t width, NormKind kind = NormKind::layer);

struct TowerLayer {
  Norm attention_norm, ffn_norm;
  SelfAttention attention;
  GatedFeedForward ffn;  // often without a gate
};
// Tensors <prefix>attn_q, _k, _v, or attn_qkv with all three, and attn_out.
SelfAttention bind_tower_attention(WeightReader& reader, const TowerParams& p, const std::string& prefix);
// Tensors v.blk.<i>.*, of files whose two feed-forward matrices have each other's names too.
TowerLayer bind_tower_layer(WeightReader& reader, const TowerParams& p, int64_t i);

// x: [T, C] -> [T, C].
Value tower_attention(Recorder& rec, const TowerParams& p, const SelfAttention& w, Value x, Mask mask);
Value tower_layer(Recorder& rec, const TowerParams& p, const TowerLayer& w, Value x, Mask mask = Mask::none);
// Keys and values of a tower are of no use after their layer, so all its layers keep them in one place: this one, to be
// declared before the first.
inline constexpr int kTowerKeys = 0;
void declare_tower_keys(Recorder& rec, const TowerParams& p);

// Declares the keys, and the first layer: patches [T, 3 * P * P] of the step -> [T, C], and the table of `places`
// positions added.
Value tower_patches(WeightReader& reader, Recorder& rec, const TowerParams& p, int64_t places);

// The stage from patches to the norm after the last block, for pictures of the tower's own size.
Result<TowerParams> record_whole_tower(const GgufFile& file, VisionModel& model);

// The side of the table of positions, which must be a square.
int64_t positions_side(WeightReader& reader);

// Complains unless the patches of a picture of the tower's size divide into squares of side x side.
void check_squares(WeightReader& reader, const TowerParams& p, int64_t side);

// x: [T, count * C], so many patches joined -> [T, C], their mean.
Value mean_of_joined(Recorder& rec, Value x, int64_t count, int64_t width);

// Two products with an activation between, of x [T, columns]: tensors <up> and <down>, with biases. The result has the
// rows whose results are wanted.
GatedFeedForward bind_projector(WeightReader& reader, const std::string& up, const std::string& down, int64_t columns);
Value project(Recorder& rec, const GatedFeedForward& w, Value x, Activation activation);

// Patches in the order of squares of sides[0] x sides[0] squares of sides[1] x sides[1] ... of them, so that neighbours
// in it are one square, on each level; the grid's sides are multiples of the product. Places are those of a table of
// the same grid. The rows left when squares have become one row each are the results.
TileLayout square_layout(PatchGrid grid, std::span<const int64_t> sides);
inline TileLayout square_layout(PatchGrid grid, int64_t side) { return square_layout(grid, {&side, 1}); }

// Of a tile at (left, top) of the picture scaled to `scaled`.
TilePlace place_of(Size picture, Size scaled, int left, int top);

}  // namespace nanomind
