// SPDX-License-Identifier: Apache-2.0
#include "models/vision/tower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nanomind {
namespace {

void append_square(int64_t top, int64_t left, int64_t columns, std::span<const int64_t> sides,
                   std::vector<int32_t>& patches) {
  if (sides.empty()) {
    patches.push_back(static_cast<int32_t>(top * columns + left));
    return;
  }
  int64_t step = 1;
  for (const int64_t side : sides.subspan(1)) step *= side;
  for (int64_t y = 0; y < sides[0]; ++y) {
    for (int64_t x = 0; x < sides[0]; ++x)
      append_square(top + y * step, left + x * step, columns, sides.subspan(1), patches);
  }
}

}  // namespace

TowerParams read_tower(WeightReader& r, VisionModel& model) {
  TowerParams p;
  p.image_size = r.count("vision.image_size", 1, 1 << 14);
  p.patch_size = r.count("vision.patch_size", 1, 1 << 10);
  p.blocks = r.count("vision.block_count", 1, 1024);
  p.width = r.count("vision.embedding_length", 8, 1 << 16);
  p.feed_forward = r.count("vision.feed_forward_length", 1, 1 << 18);
  p.heads = r.count("vision.attention.head_count", 1, 1024);
  p.eps = static_cast<float>(r.number("vision.attention.layer_norm_epsilon"));
  const std::vector<float> mean = r.list("vision.image_mean", GgufType::f32, 3);
  const std::vector<float> deviation = r.list("vision.image_std", GgufType::f32, 3);
  std::ranges::copy(mean, model.normalization.mean.begin());
  std::ranges::copy(deviation, model.normalization.std.begin());
  if (p.image_size / p.patch_size < 1 || p.side() > 256)
    r.complain(fmt::format("Pictures of {} pixels do not divide into patches of {}.", p.image_size, p.patch_size));
  if (p.width % p.heads != 0 || p.head_dim() % 8 != 0 || p.head_dim() > kMaxHeadDim)
    r.complain(fmt::format("{} heads do not fit a width of {}.", p.heads, p.width));
  if (std::ranges::any_of(deviation, [](float d) { return !(d > 0); }))
    r.complain("The standard deviations of pictures must be above 0.");
  // Files that say neither mean the GELU of OpenAI's CLIP, also where it gates.
  p.activation = r.flag_or("use_gelu", false)   ? Activation::gelu_tanh
                 : r.flag_or("use_silu", false) ? Activation::silu
                                                : Activation::gelu_quick;
  model.patch_size = p.patch_size;
  return p;
}

Norm bind_tower_norm(WeightReader& r, const std::string& name, int64_t width, NormKind kind) {
  const Norm norm = bind_norm(r, kind, name, width);
  if (kind == NormKind::layer && !norm.bias.present()) r.complain(fmt::format("Tensor {}.bias is missing.", name));
  return norm;
}

SelfAttention bind_tower_attention(WeightReader& r, const TowerParams& p, const std::string& prefix) {
  SelfAttention w{.o = r.matrix(prefix + "attn_out", p.width, p.width),
                  .o_bias = r.optional_vector(prefix + "attn_out", p.width, "bias")};
  const std::string joined = prefix + "attn_qkv";
  const bool is_joined = r.has_tensor(joined);
  const auto bind = [&](int64_t part, const char* name, Weight& weight, Weight& bias) {
    if (!is_joined) {
      weight = r.matrix(prefix + name, p.width, p.width);
      bias = r.optional_vector(prefix + name, p.width, "bias");
      return;
    }
    const WeightReader::Rows rows{.first = part * p.width, .rows = p.width, .total = 3 * p.width};
    weight = r.matrix_rows(joined, rows, p.width);
    if (r.has_tensor(joined, "bias")) bias = r.vector_rows(joined, rows, "bias");
  };
  bind(0, "attn_q", w.q, w.q_bias);
  bind(1, "attn_k", w.k, w.k_bias);
  bind(2, "attn_v", w.v, w.v_bias);
  return w;
}

TowerLayer bind_tower_layer(WeightReader& r, const TowerParams& p, int64_t i) {
  const std::string prefix = fmt::format("v.blk.{}.", i);
  std::string up = prefix + "ffn_up", down = prefix + "ffn_down", gate = prefix + "ffn_gate";
  // Old converters called the first matrix "down".
  if (p.feed_forward != p.width && r.tensor_rows(down) == p.feed_forward) std::swap(up, down);
  GatedFeedForward ffn{.gate = {},
                       .up = r.matrix(up, p.feed_forward, p.width),
                       .down = r.matrix(down, p.width, p.feed_forward),
                       .gate_bias = {},
                       .up_bias = r.optional_vector(up, p.feed_forward, "bias"),
                       .down_bias = r.optional_vector(down, p.width, "bias")};
  if (r.has_tensor(gate)) {
    ffn.gate = r.matrix(gate, p.feed_forward, p.width);
    ffn.gate_bias = r.optional_vector(gate, p.feed_forward, "bias");
  }
  return {.attention_norm = bind_tower_norm(r, prefix + "ln1", p.width, p.norm),
          .ffn_norm = bind_tower_norm(r, prefix + "ln2", p.width, p.norm),
          .attention = bind_tower_attention(r, p, prefix),
          .ffn = ffn};
}

Value tower_attention(Recorder& rec, const TowerParams& p, const SelfAttention& w, Value x, Mask mask) {
  const auto head_dim = static_cast<int>(p.head_dim());
  const auto turned = [&](Value v) { return p.rope == kNoRope ? v : rec.rope(v, p.rope, head_dim); };
  const Value mixed = rec.attention({.q = turned(rec.matmul(x, w.q, w.q_bias)),
                                     .k = turned(rec.matmul(x, w.k, w.k_bias)),
                                     .v = rec.matmul(x, w.v, w.v_bias),
                                     .layer = kTowerKeys,
                                     .heads = static_cast<int>(p.heads),
                                     .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                                     .mask = mask});
  return rec.matmul(mixed, w.o, w.o_bias);
}

void declare_tower_keys(Recorder& rec, const TowerParams& p) {
  CHECK(rec.kv_layer({p.heads, p.head_dim()}) == kTowerKeys);
}

Value tower_layer(Recorder& rec, const TowerParams& p, const TowerLayer& w, Value x, Mask mask) {
  x = rec.add(x, tower_attention(rec, p, w.attention, apply_norm(rec, w.attention_norm, x, p.eps), mask));
  return rec.add(x, feed_forward(rec, w.ffn, apply_norm(rec, w.ffn_norm, x, p.eps), p.activation));
}

Value tower_patches(WeightReader& r, Recorder& rec, const TowerParams& p, int64_t places) {
  const Weight patch = r.filters("v.patch_embd", p.width, 3, p.patch_size);
  const Weight bias = r.optional_vector("v.patch_embd", p.width, "bias");
  const Weight positions = r.matrix("v.position_embd", places, p.width);
  declare_tower_keys(rec, p);
  const Value x = rec.matmul(rec.input(3 * p.patch_size * p.patch_size), patch, bias);
  return rec.add(x, rec.embed(positions, 1.0F, Lookup::position));
}

Result<TowerParams> record_whole_tower(const GgufFile& file, VisionModel& model) {
  Recorder rec;
  WeightReader r(file, rec, "clip");
  const TowerParams p = read_tower(r, model);
  TRY(r.check());
  Value x = tower_patches(r, rec, p, p.side() * p.side());
  std::vector<TowerLayer> layers;
  for (int64_t i = 0; i < p.blocks; ++i) layers.push_back(bind_tower_layer(r, p, i));
  const Norm last = bind_tower_norm(r, "v.post_ln", p.width);
  TRY(r.check());
  for (const TowerLayer& w : layers) x = tower_layer(rec, p, w, x);
  x = rec.select_outputs(apply_norm(rec, last, x, p.eps));
  model.stages.push_back({.program = std::move(rec).finish(x)});
  return p;
}

int64_t positions_side(WeightReader& r) {
  const int64_t positions = r.tensor_rows("v.position_embd");
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions))));
  if (side * side != positions)
    r.complain(fmt::format("The {} positions of the tower are not those of a square.", positions));
  return side;
}

void check_squares(WeightReader& r, const TowerParams& p, int64_t side) {
  if (p.image_size % p.patch_size != 0 || p.side() % side != 0)
    r.complain(fmt::format("{} patches of a side do not divide into squares of {}.", p.side(), side));
}

Value mean_of_joined(Recorder& rec, Value x, int64_t count, int64_t width) {
  Value sum = rec.columns(x, 0, width);
  for (int64_t i = 1; i < count; ++i) sum = rec.add(sum, rec.columns(x, i * width, width));
  return rec.scale(sum, 1.0F / static_cast<float>(count));
}

GatedFeedForward bind_projector(WeightReader& r, const std::string& up, const std::string& down, int64_t columns) {
  const int64_t hidden = r.tensor_rows(up), width = r.tensor_rows(down);
  return {.gate = {},
          .up = r.matrix(up, hidden, columns),
          .down = r.matrix(down, width, hidden),
          .gate_bias = {},
          .up_bias = r.vector(up, hidden, "bias"),
          .down_bias = r.vector(down, width, "bias")};
}

Value project(Recorder& rec, const GatedFeedForward& w, Value x, Activation activation) {
  const Value hidden = rec.activate(rec.matmul(x, w.up, w.up_bias), activation);
  return rec.matmul(rec.select_outputs(hidden), w.down, w.down_bias);
}

TileLayout square_layout(PatchGrid grid, std::span<const int64_t> sides) {
  TileLayout layout;
  int64_t side = 1;
  for (const int64_t s : sides) side *= s;
  for (int64_t top = 0; top < grid.rows; top += side) {
    for (int64_t left = 0; left < grid.columns; left += side)
      append_square(top, left, grid.columns, sides, layout.patches);
  }
  layout.places = layout.patches;
  layout.results.resize(static_cast<size_t>(grid.count() / (side * side)));
  std::iota(layout.results.begin(), layout.results.end(), 0);
  return layout;
}

TilePlace place_of(Size picture, Size scaled, int left, int top) {
  const double x = static_cast<double>(scaled.width) / picture.width;
  const double y = static_cast<double>(scaled.height) / picture.height;
  return {.left = left / x, .top = top / y, .scale_x = x, .scale_y = y};
}

}  // namespace nanomind
