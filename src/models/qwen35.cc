// SPDX-License-Identifier: Apache-2.0
// Qwen3.5 decoder (GGUF arch "qwen35"), also the text half of MiniCPM-V 4.6: three layers of gated delta rule
// (arXiv 2412.06464) for each layer of attention, whose output is gated and of whose heads a quarter is rotated. Norm
// weights have the 1 of "1 + w" already added, ssm_a is -exp(A_log). Layers that predict further tokens are left out.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "models/architectures.h"
#include "models/blocks/decoder.h"
#include "models/blocks/rope.h"

namespace nanomind {
namespace {

constexpr int64_t kFullAttentionEvery = 4;

struct DeltaParams {
  int64_t taps = 0;
  int64_t key_dim = 0, value_dim = 0;  // of a head
  int64_t key_heads = 0, value_heads = 0;
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
};

struct GatedAttention {
  Weight q_and_gate, k, v, q_norm, k_norm, o;
};
struct DeltaNet {
  Weight qkv, z, alpha, beta, conv, decay, bias, norm, o;
};
struct Layer {
  Weight attn_norm;
  std::optional<GatedAttention> attention;  // either this
  std::optional<DeltaNet> delta;            // or this
  Weight ffn_norm;
  GatedFeedForward ffn;
};

DeltaParams read_delta_params(WeightReader& r) {
  DeltaParams d{.taps = r.count("ssm.conv_kernel", 1, 16),
                .key_dim = r.count("ssm.state_size", 1, kMaxHeadDim),
                .key_heads = r.count("ssm.group_count", 1, 1024),
                .value_heads = r.count("ssm.time_step_rank", 1, 1024)};
  const int64_t inner = r.count("ssm.inner_size", 1, 1 << 20);
  d.value_dim = inner / d.value_heads;
  if (d.value_heads % d.key_heads != 0 || inner % d.value_heads != 0 || d.value_dim > kMaxHeadDim)
    r.complain(fmt::format("{} value heads of {} columns do not fit {} key heads.", d.value_heads, inner, d.key_heads));
  return d;
}

GatedAttention bind_attention(WeightReader& r, const DecoderParams& p, int64_t i) {
  return {.q_and_gate = r.matrix(block_name(i, "attn_q"), 2 * p.heads * p.head_dim, p.width),
          .k = r.matrix(block_name(i, "attn_k"), p.kv_heads * p.head_dim, p.width),
          .v = r.matrix(block_name(i, "attn_v"), p.kv_heads * p.head_dim, p.width),
          .q_norm = r.vector(block_name(i, "attn_q_norm"), p.head_dim),
          .k_norm = r.vector(block_name(i, "attn_k_norm"), p.head_dim),
          .o = r.matrix(block_name(i, "attn_output"), p.width, p.heads * p.head_dim)};
}

DeltaNet bind_delta(WeightReader& r, const DecoderParams& p, const DeltaParams& d, int64_t i) {
  const int64_t mixed = 2 * d.keys() + d.values();
  return {.qkv = r.matrix(block_name(i, "attn_qkv"), mixed, p.width),
          .z = r.matrix(block_name(i, "attn_gate"), d.values(), p.width),
          .alpha = r.matrix(block_name(i, "ssm_alpha"), d.value_heads, p.width),
          .beta = r.matrix(block_name(i, "ssm_beta"), d.value_heads, p.width),
          .conv = r.flat_matrix(block_name(i, "ssm_conv1d"), mixed, d.taps),
          .decay = r.vector(fmt::format("blk.{}", i), d.value_heads, "ssm_a"),
          .bias = r.vector(block_name(i, "ssm_dt"), d.value_heads, "bias"),
          .norm = r.vector(block_name(i, "ssm_norm"), d.value_dim),
          .o = r.matrix(block_name(i, "ssm_out"), p.width, d.values())};
}

// h: [T, E] -> [T, E]
Value gated_attention(Recorder& rec, const GatedAttention& w, const DecoderParams& p, int rope, Value h) {
  const auto d = static_cast<int>(p.head_dim);
  const auto [q, gate] = rec.split_heads(rec.matmul(h, w.q_and_gate), p.head_dim);
  const Value k = rec.rms_norm_heads(rec.matmul(h, w.k), w.k_norm, p.eps);
  const Value mixed = rec.attention({.q = rec.rope(rec.rms_norm_heads(q, w.q_norm, p.eps), rope, d),
                                     .k = rec.rope(k, rope, d),
                                     .v = rec.matmul(h, w.v),
                                     .layer = rec.kv_layer({p.kv_heads, p.head_dim}),
                                     .heads = static_cast<int>(p.heads),
                                     .scale = 1.0F / std::sqrt(static_cast<float>(p.head_dim))});
  return rec.matmul(rec.gated(gate, mixed, Activation::sigmoid), w.o);
}

// h: [T, E] -> [T, E]
Value delta_net(Recorder& rec, const DeltaNet& w, const DecoderParams& p, const DeltaParams& d, Value h) {
  const Value mixed = rec.matmul(h, w.qkv), z = rec.matmul(h, w.z);
  const Value alpha = rec.matmul(h, w.alpha), beta = rec.matmul(h, w.beta);
  const Value remembered =
      rec.delta_rule({.x = rec.short_conv(mixed, w.conv, static_cast<int>(d.taps), Activation::silu),
                      .alpha = alpha,
                      .beta = beta,
                      .decay = w.decay,
                      .bias = w.bias,
                      .key_heads = static_cast<int>(d.key_heads),
                      .value_heads = static_cast<int>(d.value_heads),
                      .key_dim = static_cast<int>(d.key_dim),
                      .value_dim = static_cast<int>(d.value_dim),
                      .eps = 1e-6F});
  return rec.matmul(rec.gated(z, rec.rms_norm_heads(remembered, w.norm, p.eps), Activation::silu), w.o);
}

}  // namespace

Result<Model> build_qwen35(const GgufFile& file) {
  Recorder rec;
  WeightReader reader(file, rec, "qwen35");
  DecoderParams p = read_decoder_params(reader, file);
  p.layers -= reader.count_or("nextn_predict_layers", 0, 0, p.layers - 1);
  const DeltaParams d = read_delta_params(reader);
  const int64_t every = reader.count_or("full_attention_interval", kFullAttentionEvery, 1, 1024);
  const RotaryPlan rotary = read_rotary(reader, {.pairs = RopePairs::halves,
                                                 .theta = 1e7,
                                                 .rotated = p.head_dim / 4,
                                                 .head_dim = p.head_dim,
                                                 .trained_context = p.context_length});
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) {
    Layer layer{.attn_norm = reader.vector(block_name(i, "attn_norm"), p.width)};
    if ((i + 1) % every == 0)
      layer.attention = bind_attention(reader, p, i);
    else
      layer.delta = bind_delta(reader, p, d, i);
    layer.ffn_norm = reader.vector(block_name(i, "post_attention_norm"), p.width);
    layer.ffn = bind_feed_forward(reader, p, i);
    layers.push_back(layer);
  }
  const Weight norm = reader.vector("output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  const int rope = rec.rope_table(rotary.info);
  Value x = rec.embed(embedding);
  for (const Layer& w : layers) {
    const Value h = rec.rms_norm(x, w.attn_norm, p.eps);
    x = rec.add(x, w.attention ? gated_attention(rec, *w.attention, p, rope, h) : delta_net(rec, *w.delta, p, d, h));
    x = rec.add(x, feed_forward(rec, w.ffn, rec.rms_norm(x, w.ffn_norm, p.eps), Activation::silu));
  }
  const Value logits = output_head(rec, x, norm, head, p.eps);
  return finish_model("qwen35", p, std::move(rec), logits);
}

}  // namespace nanomind
