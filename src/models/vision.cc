// SPDX-License-Identifier: Apache-2.0
// The SigLIP tower (arXiv 2303.15343; a ViT without class token, whose blocks begin with their norms) and the projector
// of LLaVA-1.5 (2310.03744): two products with a GELU between.
#include "models/vision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/blocks/decoder.h"
#include "models/blocks/layer.h"
#include "models/weights.h"
#include "ops/recorder.h"

namespace nanomind {
namespace {

struct Params {
  int64_t layers = 0, width = 0, feed_forward = 0, heads = 0, patches = 0;
  float eps = 0;
  Activation activation = Activation::gelu;
};

struct Layer {
  Norm attention_norm, ffn_norm;
  SelfAttention attention;
  GatedFeedForward ffn;  // without a gate
};

struct Tower {
  WeightReader& r;
  Params p;

  Norm norm(const std::string& name) const {
    const Norm norm = bind_norm(r, NormKind::layer, name, p.width);
    if (!norm.bias.present()) r.complain(fmt::format("Tensor {}.bias is missing.", name));
    return norm;
  }
  Value norm(Recorder& rec, const Norm& norm, Value x) const { return apply_norm(rec, norm, x, p.eps); }

  Layer bind_layer(int64_t i) const {
    const auto name = [&](const char* part) { return fmt::format("v.blk.{}.{}", i, part); };
    const auto square = [&](const char* part) { return r.matrix(name(part), p.width, p.width); };
    const auto bias = [&](const char* part, int64_t rows) { return r.optional_vector(name(part), rows, "bias"); };
    return {.attention_norm = norm(name("ln1")),
            .ffn_norm = norm(name("ln2")),
            .attention = {.q = square("attn_q"),
                          .k = square("attn_k"),
                          .v = square("attn_v"),
                          .o = square("attn_out"),
                          .q_bias = bias("attn_q", p.width),
                          .k_bias = bias("attn_k", p.width),
                          .v_bias = bias("attn_v", p.width),
                          .o_bias = bias("attn_out", p.width)},
            .ffn = {.gate = {},
                    .up = r.matrix(name("ffn_up"), p.feed_forward, p.width),
                    .down = r.matrix(name("ffn_down"), p.width, p.feed_forward),
                    .gate_bias = {},
                    .up_bias = bias("ffn_up", p.feed_forward),
                    .down_bias = bias("ffn_down", p.width)}};
  }

  // x: [T, C] -> [T, C]
  Value layer(Recorder& rec, const Layer& w, Value x) const {
    const int64_t head_dim = p.width / p.heads;
    const SelfAttention& a = w.attention;
    const Value h = norm(rec, w.attention_norm, x);
    const Value mixed = rec.attention({.q = rec.matmul(h, a.q, a.q_bias),
                                       .k = rec.matmul(h, a.k, a.k_bias),
                                       .v = rec.matmul(h, a.v, a.v_bias),
                                       .layer = rec.kv_layer({p.heads, head_dim}),
                                       .heads = static_cast<int>(p.heads),
                                       .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                                       .mask = Mask::none});
    x = rec.add(x, rec.matmul(mixed, a.o, a.o_bias));
    return rec.add(x, feed_forward(rec, w.ffn, norm(rec, w.ffn_norm, x), p.activation));
  }
};

Params read_params(WeightReader& r, VisionModel& model) {
  Params p;
  model.image_size = r.count("vision.image_size", 1, 1 << 14);
  model.patch_size = r.count("vision.patch_size", 1, 1 << 10);
  p.width = r.count("vision.embedding_length", 8, 1 << 16);
  p.feed_forward = r.count("vision.feed_forward_length", 1, 1 << 18);
  p.heads = r.count("vision.attention.head_count", 1, 1024);
  p.eps = static_cast<float>(r.number("vision.attention.layer_norm_epsilon"));
  const std::vector<float> mean = r.list("vision.image_mean", GgufType::f32, 3);
  const std::vector<float> deviation = r.list("vision.image_std", GgufType::f32, 3);
  for (size_t c = 0; c < 3; ++c) model.mean[c] = mean[c], model.deviation[c] = deviation[c];
  if (model.image_size % model.patch_size != 0 || model.image_size / model.patch_size > 256)
    r.complain(
        fmt::format("Pictures of {} pixels do not divide into patches of {}.", model.image_size, model.patch_size));
  const int64_t side = model.image_size / model.patch_size;
  p.patches = side * side;
  if (p.width % p.heads != 0 || p.width / p.heads % 8 != 0 || p.width / p.heads > kMaxHeadDim)
    r.complain(fmt::format("{} heads do not fit a width of {}.", p.heads, p.width));
  if (std::ranges::any_of(model.deviation, [](float d) { return !(d > 0); }))
    r.complain("The standard deviations of pictures must be above 0.");
  // LLaVA reads the states before the last block where the file does not say which.
  const int64_t blocks = r.count("vision.block_count", 1, 1024);
  p.layers = r.has("vision.feature_layer") ? static_cast<int64_t>(r.list("vision.feature_layer", GgufType::i32, 1)[0])
                                           : blocks - 1;
  if (p.layers < 0 || p.layers > blocks) r.complain("The layer whose states are projected is outside the tower.");
  p.activation = r.flag_or("use_gelu", false)   ? Activation::gelu_tanh
                 : r.flag_or("use_silu", false) ? Activation::silu
                                                : Activation::gelu;
  return p;
}

Result<void> record_tower(const GgufFile& file, VisionModel& model, Params& p) {
  Recorder rec;
  WeightReader reader(file, rec, "clip");
  p = read_params(reader, model);
  TRY(reader.check());
  const Tower tower{reader, p};
  const int64_t pixels = 3 * model.patch_size * model.patch_size;
  const Weight patch = reader.filters("v.patch_embd", p.width, 3, model.patch_size);
  const Weight patch_bias = reader.optional_vector("v.patch_embd", p.width, "bias");
  const Weight positions = reader.matrix("v.position_embd", p.patches, p.width);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(tower.bind_layer(i));
  // The last norm belongs to all blocks together.
  const bool whole = p.layers == reader.count("vision.block_count", 1, 1024) && reader.has_tensor("v.post_ln");
  const Norm last = whole ? tower.norm("v.post_ln") : Norm();  // or not present
  TRY(reader.check());

  Value x = rec.matmul(rec.input(pixels), patch, patch_bias);
  x = rec.add(x, rec.embed(positions, 1.0F, Lookup::position));
  for (const Layer& w : layers) x = tower.layer(rec, w, x);
  x = rec.select_outputs(tower.norm(rec, last, x));
  model.tower = std::move(rec).finish(x);
  return {};
}

Result<void> record_projector(const GgufFile& file, VisionModel& model, int64_t width) {
  Recorder rec;
  WeightReader reader(file, rec, "clip");
  const int64_t hidden = reader.tensor_rows("mm.0");
  model.width = reader.tensor_rows("mm.2");
  const GatedFeedForward w{.gate = {},
                           .up = reader.matrix("mm.0", hidden, width),
                           .down = reader.matrix("mm.2", model.width, hidden),
                           .gate_bias = {},
                           .up_bias = reader.vector("mm.0", hidden, "bias"),
                           .down_bias = reader.vector("mm.2", model.width, "bias")};
  TRY(reader.check());
  const Value x = rec.select_outputs(feed_forward(rec, w, rec.input(width), Activation::gelu_tanh));
  model.projector = std::move(rec).finish(x);
  return {};
}

}  // namespace

Result<VisionModel> build_vision(const GgufFile& file) {
  const std::string_view architecture = TRY(file.get_string("general.architecture"));
  if (architecture != "clip")
    return fail(ErrorCode::invalid_argument, fmt::format("{} is a model of architecture {}, not one that sees (clip).",
                                                         file.subject(), architecture));
  VisionModel model;
  model.projector_type = TRY(file.get_string("clip.projector_type"));
  if (model.projector_type != "mlp")
    return fail(ErrorCode::unsupported,
                fmt::format("Projectors of type '{}' are not supported yet; known is mlp.", model.projector_type));
  Params p;
  TRY(record_tower(file, model, p));
  TRY(record_projector(file, model, p.width));
  model.tokens = p.patches;
  return model;
}

}  // namespace nanomind
