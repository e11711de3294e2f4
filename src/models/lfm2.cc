// SPDX-License-Identifier: Apache-2.0
// LFM2 decoder (GGUF arch "lfm2"): layers of a gated short convolution, out = W_o (c * conv(b * x)) with b, c and x
// from one product, among layers of attention with normed heads. Which is which follows from the tensors. Liquid AI's
// LFM2 report, arXiv 2511.23404.
#include <cmath>
#include <optional>

#include "models/architectures.h"
#include "models/blocks/layer.h"
#include "models/blocks/rope.h"

namespace nanomind {
namespace {

struct GatedConv {
  Weight b, c, x, conv, o;
};
struct Layer {
  Weight norm;
  std::optional<GatedConv> conv;           // either this
  std::optional<SelfAttention> attention;  // or this
  Weight q_norm, k_norm;
  Weight ffn_norm;
  GatedFeedForward ffn;
};

GatedConv bind_conv(WeightReader& r, const DecoderParams& p, int64_t taps, int64_t i) {
  const auto part = [&](int64_t index) {
    return r.matrix_rows(block_name(i, "shortconv.in_proj"), {index * p.width, p.width, 3 * p.width}, p.width);
  };
  return {.b = part(0),
          .c = part(1),
          .x = part(2),
          .conv = r.flat_matrix(block_name(i, "shortconv.conv"), p.width, taps),
          .o = r.matrix(block_name(i, "shortconv.out_proj"), p.width, p.width)};
}

Layer bind_layer(WeightReader& r, const DecoderParams& p, int64_t taps, int64_t i) {
  Layer layer{.norm = r.vector(block_name(i, "attn_norm"), p.width)};
  if (r.has_tensor(block_name(i, "shortconv.conv"))) {
    layer.conv = bind_conv(r, p, taps, i);
  } else {
    layer.attention = bind_self_attention(r, p, i, QkvBias::absent);
    layer.q_norm = r.vector(block_name(i, "attn_q_norm"), p.head_dim);
    layer.k_norm = r.vector(block_name(i, "attn_k_norm"), p.head_dim);
  }
  layer.ffn_norm = r.vector(block_name(i, "ffn_norm"), p.width);
  layer.ffn = bind_feed_forward(r, p, i);
  return layer;
}

// h: [T, E] -> [T, E]
Value gated_conv(Recorder& rec, const GatedConv& w, int64_t taps, Value h) {
  const Value b = rec.matmul(h, w.b), c = rec.matmul(h, w.c), x = rec.matmul(h, w.x);
  const Value mixed =
      rec.short_conv(rec.gated(b, x, Activation::identity), w.conv, static_cast<int>(taps), Activation::identity);
  return rec.matmul(rec.gated(c, mixed, Activation::identity), w.o);
}

// h: [T, E] -> [T, E]
Value attention(Recorder& rec, const Layer& w, const DecoderParams& p, int rope, Value h) {
  const auto d = static_cast<int>(p.head_dim);
  const Value q = rec.rms_norm_heads(rec.matmul(h, w.attention->q), w.q_norm, p.eps);
  const Value k = rec.rms_norm_heads(rec.matmul(h, w.attention->k), w.k_norm, p.eps);
  const Value mixed = rec.attention({.q = rec.rope(q, rope, d),
                                     .k = rec.rope(k, rope, d),
                                     .v = rec.matmul(h, w.attention->v),
                                     .layer = rec.kv_layer({p.kv_heads, p.head_dim}),
                                     .heads = static_cast<int>(p.heads),
                                     .scale = 1.0F / std::sqrt(static_cast<float>(p.head_dim))});
  return rec.matmul(mixed, w.attention->o);
}

}  // namespace

Result<Model> build_lfm2(const GgufFile& file) {
  Recorder rec;
  WeightReader reader(file, rec, "lfm2");
  const DecoderParams p = read_decoder_params(reader, file);
  const int64_t taps = reader.count("shortconv.l_cache", 1, 16);
  const RotaryPlan rotary = read_rotary(reader, {.pairs = RopePairs::halves,
                                                 .theta = 1e6,
                                                 .rotated = p.head_dim,
                                                 .head_dim = p.head_dim,
                                                 .trained_context = p.context_length});
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_layer(reader, p, taps, i));
  // Older files have the output's norm under the name that the publisher gives it.
  const bool published_name = reader.has_tensor("token_embd_norm");
  const Weight norm = reader.vector(published_name ? "token_embd_norm" : "output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  const int rope = rec.rope_table(rotary.info);
  Value x = rec.embed(embedding);
  for (const Layer& w : layers) {
    const Value h = rec.rms_norm(x, w.norm, p.eps);
    x = rec.add(x, w.conv ? gated_conv(rec, *w.conv, taps, h) : attention(rec, w, p, rope, h));
    x = rec.add(x, feed_forward(rec, w.ffn, rec.rms_norm(x, w.ffn_norm, p.eps), Activation::silu));
  }
  const Value logits = output_head(rec, x, norm, head, p.eps);
  return finish_model("lfm2", p, std::move(rec), logits);
}

}  // namespace nanomind
