// SPDX-License-Identifier: Apache-2.0
// Qwen2.5-VL (arXiv 2502.13923) and Qwen3-VL (2511.21631): pictures of any size, whose patches have rotary positions in
// the plane; squares of 2 x 2 are joined. The first sees windows in most blocks; the second adds a stretched table of
// positions, and projects states of some blocks besides the last, for the language model's first layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "media/resize.h"
#include "models/vision/registry.h"
#include "models/vision/tower.h"

namespace nanomind {
namespace {

constexpr int64_t kSide = 2, kJoined = kSide * kSide;  // patches of a row
constexpr std::string_view kStart = "<|vision_start|>", kEnd = "<|vision_end|>";
constexpr double kTheta = 10000.0;
// Of a picture, whatever the file allows: the publisher recommends this many, and a board can wait for no more.
constexpr int64_t kMostRows = 1280;

struct PixelLimits {
  int64_t least = 0, most = 0;
};

// Sides that are multiples of `factor`, near the picture's shape, whose product is within the limits. The arithmetic is
// the processor's, with Python's rounding; pictures like threads, which it refuses, are kept within the limits, too.
Size smart_size(Size picture, int factor, PixelLimits limits) {
  const double height = picture.height, width = picture.width;
  const auto rounded = [&](double x) { return static_cast<int64_t>(std::nearbyint(x / factor)) * factor; };
  int64_t h = rounded(height), w = rounded(width);
  if (h * w > limits.most) {
    const double beta = std::sqrt(height * width / static_cast<double>(limits.most));
    h = std::max<int64_t>(factor, static_cast<int64_t>(std::floor(height / beta / factor)) * factor);
    w = std::max<int64_t>(factor, static_cast<int64_t>(std::floor(width / beta / factor)) * factor);
  } else if (h * w < limits.least) {
    const double beta = std::sqrt(static_cast<double>(limits.least) / (height * width));
    h = static_cast<int64_t>(std::ceil(height * beta / factor)) * factor;
    w = static_cast<int64_t>(std::ceil(width * beta / factor)) * factor;
  }
  int64_t &longer = h > w ? h : w, shorter = std::min(h, w);
  longer = std::max<int64_t>(factor, std::min(longer, limits.most / shorter / factor * factor));
  return {static_cast<int>(w), static_cast<int>(h)};
}

PixelLimits read_limits(WeightReader& r, const TowerParams& p, PixelLimits usual) {
  constexpr int64_t kAny = int64_t{1} << 40;
  const int64_t row = kJoined * p.patch_size * p.patch_size;
  PixelLimits limits{.least = r.count_or("vision.image_min_pixels", usual.least, 1, kAny),
                     .most = r.count_or("vision.image_max_pixels", usual.most, row, kAny)};
  limits.most = std::min(limits.most, kMostRows * row);
  limits.least = std::min(limits.least, limits.most);
  return limits;
}

CutPicture cut_picture(const Image& picture, int factor, PixelLimits limits) {
  const Size size = smart_size(picture.size, factor, limits);
  CutPicture cut;
  cut.add_text(std::string(kStart));
  cut.add_tile(resize(picture, size, Filter::bicubic), place_of(picture.size, size, 0, 0));
  cut.add_text(std::string(kEnd));
  return cut;
}

// The first half of the pairs turns by the patch's row, the second by its column.
RopeInfo plane_rope(int64_t head_dim) {
  RopeInfo info = rope_table(RopePairs::halves, kTheta, head_dim / 2);
  const size_t half = info.inverse_frequency.size();
  info.inverse_frequency.insert(info.inverse_frequency.end(), info.inverse_frequency.begin(),
                                info.inverse_frequency.begin() + static_cast<int64_t>(half));
  info.axes.assign(half, 1);
  info.axes.resize(2 * half, 2);
  return info;
}

// A film of two equal pictures: both kernels see the same patch.
Value both_patches(WeightReader& r, Recorder& rec, const TowerParams& p, Value patches) {
  const Weight one = r.filters("v.patch_embd", p.width, 3, p.patch_size);
  const Weight two = r.filters("v.patch_embd", p.width, 3, p.patch_size, "weight.1");
  const Weight bias = r.optional_vector("v.patch_embd", p.width, "bias");
  return rec.add(rec.matmul(patches, one, bias), rec.matmul(patches, two));
}

void place_in_plane(TileLayout& layout, PatchGrid grid) {
  for (const int32_t patch : layout.patches) {
    const auto columns = static_cast<int32_t>(grid.columns);
    layout.where.push_back({0, patch / columns, patch % columns});
  }
  layout.places.clear();
}

// Squares of patches in the order of windows of `side` x `side` squares; those at the edges are smaller.
TileLayout window_layout(PatchGrid grid, int64_t side) {
  const TileLayout squares = square_layout(grid, kSide);
  const int64_t rows = grid.rows / kSide, columns = grid.columns / kSide;
  TileLayout layout;
  layout.results.resize(static_cast<size_t>(rows * columns));
  int32_t next = 0;
  for (int64_t top = 0; top < rows; top += side) {
    for (int64_t left = 0; left < columns; left += side) {
      const int64_t bottom = std::min(top + side, rows), right = std::min(left + side, columns);
      for (int64_t y = top; y < bottom; ++y) {
        for (int64_t x = left; x < right; ++x) {
          const int64_t square = y * columns + x;
          const auto first = squares.patches.begin() + square * kJoined;
          layout.patches.insert(layout.patches.end(), first, first + kJoined);
          layout.results[static_cast<size_t>(square)] = next++;
        }
      }
      layout.windows.push_back(static_cast<int32_t>((bottom - top) * (right - left) * kJoined));
    }
  }
  place_in_plane(layout, grid);
  return layout;
}

Result<TowerParams> record_qwen25_tower(const GgufFile& file, VisionModel& model) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  TowerParams p = read_tower(r, model);
  const int64_t pattern = r.count_or("vision.n_wa_pattern", 0, 0, p.blocks);  // every n-th block sees everything
  p.norm = NormKind::rms;
  TRY(r.check());
  p.rope = rec.rope_table(plane_rope(p.head_dim()));
  declare_tower_keys(rec, p);
  Value x = both_patches(r, rec, p, rec.input(3 * p.patch_size * p.patch_size));
  for (int64_t i = 0; i < p.blocks; ++i) {
    const bool all = pattern == 0 || (i + 1) % pattern == 0;
    x = tower_layer(rec, p, bind_tower_layer(r, p, i), x, all ? Mask::none : Mask::group);
  }
  const Norm last = bind_tower_norm(r, "v.post_ln", p.width, p.norm);
  TRY(r.check());
  x = rec.select_outputs(apply_norm(rec, last, x, p.eps));
  model.stages.push_back({.program = std::move(rec).finish(x)});
  return p;
}

Result<void> record_qwen25_projector(const GgufFile& file, VisionModel& model, const TowerParams& p) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const int64_t joined = kJoined * p.width;
  model.width = r.tensor_rows("mm.2");
  const Value x = project(rec, bind_projector(r, "mm.0", "mm.2", joined), rec.input(joined), Activation::gelu);
  TRY(r.check());
  model.stages.push_back({.program = std::move(rec).finish(x), .merge = kJoined});
  return {};
}

void finish(VisionModel& model, const TowerParams& p, PixelLimits limits) {
  model.most_patches = limits.most / (p.patch_size * p.patch_size);
  model.joined_side = kSide;
  model.markers = {std::string(kStart), std::string(kEnd)};
  model.cut = [factor = static_cast<int>(kSide * p.patch_size), limits](const Image& picture, const PictureDetail&) {
    return cut_picture(picture, factor, limits);
  };
}

// Blocks whose states are projected too.
std::vector<int64_t> read_deep_blocks(WeightReader& r, const TowerParams& p) {
  std::vector<int64_t> blocks;
  if (!r.has("vision.is_deepstack_layers")) return blocks;
  const std::vector<float> flags = r.list("vision.is_deepstack_layers", GgufType::boolean, p.blocks);
  for (int64_t i = 0; i < p.blocks; ++i) {
    if (flags[static_cast<size_t>(i)] != 0) blocks.push_back(i);
  }
  return blocks;
}

struct Qwen3Tower {
  TowerParams params;
  std::vector<int64_t> deep;     // blocks
  int64_t positions_side = 0;    // of the table
  std::vector<float> positions;  // [side * side, C]
};

// The states after the last block, normed, and those after deep ones, side by side.
Result<Qwen3Tower> record_qwen3_tower(const GgufFile& file, VisionModel& model) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  Qwen3Tower t{.params = read_tower(r, model)};
  TowerParams& p = t.params;
  t.deep = read_deep_blocks(r, p);
  t.positions_side = positions_side(r);
  t.positions = r.matrix_floats("v.position_embd", t.positions_side * t.positions_side, p.width);
  TRY(r.check());
  p.rope = rec.rope_table(plane_rope(p.head_dim()));
  declare_tower_keys(rec, p);
  const int64_t samples = 3 * p.patch_size * p.patch_size;
  const Value given = rec.input(samples + p.width);
  Value x = rec.add(both_patches(r, rec, p, rec.columns(given, 0, samples)), rec.columns(given, samples, p.width));
  std::vector<Value> parts(1);
  for (int64_t i = 0; i < p.blocks; ++i) {
    x = tower_layer(rec, p, bind_tower_layer(r, p, i), x);
    if (std::ranges::find(t.deep, i) != t.deep.end()) parts.push_back(x);
  }
  const Norm last = bind_tower_norm(r, "v.post_ln", p.width);
  TRY(r.check());
  parts[0] = apply_norm(rec, last, x, p.eps);
  x = rec.select_outputs(rec.join(parts));
  model.stages.push_back({.program = std::move(rec).finish(x)});
  return t;
}

Result<void> record_qwen3_projector(const GgufFile& file, VisionModel& model, const Qwen3Tower& t) {
  const TowerParams& p = t.params;
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const int64_t width = r.tensor_rows("mm.2"), parts = 1 + static_cast<int64_t>(t.deep.size());
  const int64_t joined = kJoined * p.width;
  const Value given = rec.input(parts * joined);
  // The four patches' columns of one part.
  const auto part = [&](int64_t i) {
    std::vector<Value> patches;
    for (int64_t k = 0; k < kJoined; ++k) patches.push_back(rec.columns(given, (k * parts + i) * p.width, p.width));
    return rec.join(std::move(patches));
  };
  std::vector<Value> rows{project(rec, bind_projector(r, "mm.0", "mm.2", joined), part(0), Activation::gelu)};
  for (size_t i = 0; i < t.deep.size(); ++i) {
    const std::string prefix = fmt::format("v.deepstack.{}.", t.deep[i]);
    const Norm norm = bind_tower_norm(r, prefix + "norm", joined);
    const GatedFeedForward w = bind_projector(r, prefix + "fc1", prefix + "fc2", joined);
    if (r.tensor_rows(prefix + "fc2") != width)
      r.complain(prefix + "fc2.weight makes rows of another width than mm.2.");
    const Value x = apply_norm(rec, norm, part(static_cast<int64_t>(i) + 1), p.eps);
    rows.push_back(project(rec, w, x, Activation::gelu));
  }
  TRY(r.check());
  model.width = width * parts;
  model.levels = parts;
  const Value out = rec.join(rows);
  model.stages.push_back({.program = std::move(rec).finish(out), .merge = kJoined});
  return {};
}

// The table's rows for the patches of a grid that it is stretched over, corner to corner.
std::vector<float> stretched_positions(const Qwen3Tower& t, const TileLayout& layout, PatchGrid grid) {
  const auto width = static_cast<size_t>(t.params.width);
  const int64_t side = t.positions_side;
  const auto along = [&](int64_t i, int64_t count) {
    return static_cast<double>(i) * static_cast<double>(side - 1) /
           static_cast<double>(std::max<int64_t>(1, count - 1));
  };
  std::vector<float> rows;
  rows.reserve(layout.patches.size() * width);
  for (const int32_t patch : layout.patches) {
    const double y = along(patch / grid.columns, grid.rows), x = along(patch % grid.columns, grid.columns);
    const auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
    const int64_t bottom = std::min(top + 1, side - 1), right = std::min(left + 1, side - 1);
    const auto down = static_cast<float>(y - static_cast<double>(top));
    const auto across = static_cast<float>(x - static_cast<double>(left));
    const auto row = [&](int64_t v, int64_t h) {
      return t.positions.data() + static_cast<size_t>(v * side + h) * width;
    };
    const float *a = row(top, left), *b = row(top, right), *c = row(bottom, left), *d = row(bottom, right);
    for (size_t i = 0; i < width; ++i) {
      rows.push_back((1 - down) * ((1 - across) * a[i] + across * b[i]) + down * ((1 - across) * c[i] + across * d[i]));
    }
  }
  return rows;
}

}  // namespace

Result<VisionModel> build_qwen25_vision(const GgufFile& file) {
  VisionModel model;
  const TowerParams p = TRY(record_qwen25_tower(file, model));
  TRY(record_qwen25_projector(file, model, p));
  Recorder unused;
  WeightReader r(file, unused, "clip");
  const int64_t window = r.count_or("vision.window_size", 112, kSide * p.patch_size, 1 << 16);  // pixels
  const PixelLimits limits = read_limits(r, p, {.least = 3136, .most = 12845056});
  TRY(r.check());
  finish(model, p, limits);
  model.layout = [side = window / p.patch_size / kSide](PatchGrid grid) { return window_layout(grid, side); };
  return model;
}

Result<VisionModel> build_qwen3_vision(const GgufFile& file) {
  VisionModel model;
  Qwen3Tower t = TRY(record_qwen3_tower(file, model));
  TRY(record_qwen3_projector(file, model, t));
  Recorder unused;
  WeightReader r(file, unused, "clip");
  const PixelLimits limits = read_limits(r, t.params, {.least = 65536, .most = 16777216});
  TRY(r.check());
  finish(model, t.params, limits);
  model.layout = [t = std::move(t)](PatchGrid grid) {
    TileLayout layout = square_layout(grid, kSide);
    place_in_plane(layout, grid);
    layout.added = stretched_positions(t, layout, grid);
    return layout;
  };
  return model;
}

}  // namespace nanomind
