// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/plan.h"

#include <utility>
#include <vector>

namespace nanomind {

Result<Model> build_decoder(const GgufFile& file, std::string architecture,
                            const std::function<DecoderPlan(WeightReader& reader, const DecoderParams& p)>& plan) {
  Recorder rec;
  WeightReader reader(file, rec, architecture);
  const DecoderParams p = read_decoder_params(reader, file);
  DecoderPlan d = plan(reader, p);
  RotaryPlan rotary = read_rotary(reader, {.pairs = d.pairs,
                                           .theta = d.theta,
                                           .rotated = p.head_dim,
                                           .head_dim = p.head_dim,
                                           .trained_context = p.context_length});
  if (d.adapt_rope) d.adapt_rope(rotary);
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  const Weight positions = d.has_positions ? Weight() : reader.matrix("position_embd", p.context_length, p.width);
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_decoder_layer(reader, p, d.parts, i));
  const Norm norm = bind_norm(reader, d.parts.norm, "output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  const Weight head_bias = reader.optional_vector("output", p.vocabulary, "bias");
  TRY(reader.check());

  Value x = rec.embed(embedding, d.embedding_scale);
  if (d.has_positions) {
    d.style.rope = rec.rope_table(rotary.info);
    if (d.query_rope) d.style.query_rope = rec.rope_table(d.query_rope(rotary.info));
    for (RopeInfo& rope : d.more_ropes) rec.rope_table(std::move(rope));
  } else {
    x = rec.add(x, rec.embed(positions, 1.0F, Lookup::position));
  }
  for (int64_t i = 0; i < p.layers; ++i) {
    LayerStyle style = d.style;
    if (d.adapt) d.adapt(i, style);
    x = decoder_layer(rec, layers[static_cast<size_t>(i)], p, style, x);
    if (i < d.picture_layers) x = rec.add(x, rec.input(p.width, (i + 1) * p.width));
  }
  const Value logits = head_product(rec, apply_norm(rec, norm, rec.select_outputs(x), p.eps), head, head_bias);
  Model model = finish_model(std::move(architecture), p, std::move(rec), rec.scale(logits, d.logit_scale, d.logit_cap));
  model.picture_levels = 1 + d.picture_layers;
  if (rotary.long_info) {
    model.long_ropes.push_back({.rope = d.style.rope, .info = std::move(*rotary.long_info), .beyond = rotary.beyond});
  }
  return model;
}

std::function<void(int64_t layer, LayerStyle& style)> global_every(int64_t n, int64_t window) {
  return [n, window](int64_t layer, LayerStyle& style) {
    if ((layer + 1) % n == 0)
      style.rope = kNoRope;
    else
      style.window = window;
  };
}

std::optional<Routing> read_routing(WeightReader& reader, const DecoderParams& p, Routing usual) {
  if (p.experts == 0) return std::nullopt;
  Routing routing = usual;
  routing.used = static_cast<int32_t>(reader.count("expert_used_count", 1, p.experts));
  routing.scale = static_cast<float>(reader.number_or("expert_weights_scale", usual.scale));
  if (routing.scale == 0) routing.scale = 1.0F;
  routing.normalise = reader.flag_or("expert_weights_norm", usual.normalise);
  if (reader.count_or("expert_group_count", 1, 0, p.experts) > 1)
    reader.refuse("Experts that are chosen by groups are not supported.");
  switch (reader.count_or("expert_gating_func", 0, 0, 16)) {
    case 0: break;
    case 1: routing.score = RouterScore::softmax; break;
    case 2: routing.score = RouterScore::sigmoid; break;
    default: reader.refuse("The way in which the file's router scores its experts is not supported.");
  }
  return routing;
}

int64_t read_window(WeightReader& reader) {
  return reader.count_or("attention.sliding_window", 0, 0, int64_t{1} << 40);
}

}  // namespace nanomind
