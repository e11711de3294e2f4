// SPDX-License-Identifier: Apache-2.0
// Gemma 3 decoder (GGUF arch "gemma3"): norms before and after attention and feed-forward, normed q and k, five layers
// with a sliding window for each global one, GELU-gated feed-forward, embeddings scaled by sqrt(E). Gemma 3 report,
// arXiv 2503.19786. GGUF files store norm weights with the 1 of "1 + w" already added.
#include <cmath>

#include "models/architectures.h"
#include "models/blocks/decoder.h"

namespace nanomind {
namespace {

constexpr int64_t kGlobalEvery = 6;      // layer i sees everything when (i + 1) % 6 == 0
constexpr double kLocalTheta = 10000.0;  // rotary base of the layers with a window

struct Layer {
  Weight attn_norm, q, k, v, q_norm, k_norm, o, post_attn_norm, ffn_norm, post_ffn_norm;
  GatedFeedForward ffn;
};

struct Place {
  int rope = 0;
  int64_t window = 0;
};

Layer bind_layer(WeightReader& r, const DecoderParams& p, int64_t i) {
  return {.attn_norm = r.vector(block_name(i, "attn_norm"), p.width),
          .q = r.matrix(block_name(i, "attn_q"), p.heads * p.head_dim, p.width),
          .k = r.matrix(block_name(i, "attn_k"), p.kv_heads * p.head_dim, p.width),
          .v = r.matrix(block_name(i, "attn_v"), p.kv_heads * p.head_dim, p.width),
          .q_norm = r.vector(block_name(i, "attn_q_norm"), p.head_dim),
          .k_norm = r.vector(block_name(i, "attn_k_norm"), p.head_dim),
          .o = r.matrix(block_name(i, "attn_output"), p.width, p.heads * p.head_dim),
          .post_attn_norm = r.vector(block_name(i, "post_attention_norm"), p.width),
          .ffn_norm = r.vector(block_name(i, "ffn_norm"), p.width),
          .post_ffn_norm = r.vector(block_name(i, "post_ffw_norm"), p.width),
          .ffn = bind_feed_forward(r, p, i)};
}

// x: [T, E] -> [T, E]
Value layer(Recorder& rec, const Layer& w, const DecoderParams& p, Place place, float scale, Value x) {
  const Value h = rec.rms_norm(x, w.attn_norm, p.eps);
  const Value q = rec.rms_norm_heads(rec.matmul(h, w.q), w.q_norm, p.eps);
  const Value k = rec.rms_norm_heads(rec.matmul(h, w.k), w.k_norm, p.eps);
  const Value v = rec.matmul(h, w.v);
  const auto d = static_cast<int>(p.head_dim);
  const Value mixed = rec.attention({.q = rec.rope(q, place.rope, d),
                                     .k = rec.rope(k, place.rope, d),
                                     .v = v,
                                     .layer = rec.kv_layer({p.kv_heads, p.head_dim}),
                                     .heads = static_cast<int>(p.heads),
                                     .window = place.window,
                                     .scale = scale,
                                     .mask = Mask::causal_group});  // rows of a picture see each other
  x = rec.add(x, rec.rms_norm(rec.matmul(mixed, w.o), w.post_attn_norm, p.eps));
  const Value f = feed_forward(rec, w.ffn, rec.rms_norm(x, w.ffn_norm, p.eps), Activation::gelu_tanh);
  return rec.add(x, rec.rms_norm(f, w.post_ffn_norm, p.eps));
}

}  // namespace

Result<Model> build_gemma3(const GgufFile& file) {
  Recorder rec;
  WeightReader reader(file, rec, "gemma3");
  const DecoderParams p = read_decoder_params(reader, file);
  const double theta = reader.number_or("rope.freq_base", 1e6);
  const double local_theta = reader.number_or("rope.freq_base_swa", kLocalTheta);
  const double scaling = reader.number_or("rope.scaling.factor", 1.0);
  const int64_t window = reader.count_or("attention.sliding_window", 0, 0, int64_t{1} << 40);
  if (scaling <= 0) reader.complain("gemma3.rope.scaling.factor must be positive.");
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_layer(reader, p, i));
  const Weight norm = reader.vector("output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  RopeInfo global = rope_table(RopePairs::halves, theta, p.head_dim);
  for (float& f : global.inverse_frequency) f = static_cast<float>(f / scaling);  // linear scaling, global layers only
  const Place everywhere{.rope = rec.rope_table(std::move(global)), .window = 0};
  const Place nearby{.rope = rec.rope_table(rope_table(RopePairs::halves, local_theta, p.head_dim)), .window = window};
  const float scale = 1.0F / std::sqrt(static_cast<float>(p.head_dim));

  Value x = rec.embed(embedding, std::sqrt(static_cast<float>(p.width)));
  for (int64_t i = 0; i < p.layers; ++i) {
    x = layer(rec, layers[static_cast<size_t>(i)], p, (i + 1) % kGlobalEvery == 0 ? everywhere : nearby, scale, x);
  }
  const Value logits = output_head(rec, x, norm, head, p.eps);
  return finish_model("gemma3", p, std::move(rec), logits);
}

}  // namespace nanomind
