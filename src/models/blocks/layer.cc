// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/layer.h"

#include <cmath>
#include <string>

namespace nanomind {
namespace {

// Some files join q, k and v in one matrix.
SelfAttention bind_fused_attention(WeightReader& r, const DecoderParams& p, int64_t layer) {
  const std::string name = block_name(layer, "attn_qkv");
  const int64_t q = p.heads * p.head_dim, kv = p.kv_heads * p.head_dim, total = q + 2 * kv;
  const WeightReader::Rows parts[] = {{0, q, total}, {q, kv, total}, {q + kv, kv, total}};
  const bool has_bias = r.has_tensor(name, "bias");
  const auto bias = [&](const WeightReader::Rows& rows) {
    return has_bias ? r.vector_rows(name, rows, "bias") : Weight();
  };
  return {.q = r.matrix_rows(name, parts[0], p.width),
          .k = r.matrix_rows(name, parts[1], p.width),
          .v = r.matrix_rows(name, parts[2], p.width),
          .o = r.matrix(block_name(layer, "attn_output"), p.width, q),
          .q_bias = bias(parts[0]),
          .k_bias = bias(parts[1]),
          .v_bias = bias(parts[2])};
}

SelfAttention bind_attention(WeightReader& r, const DecoderParams& p, const LayerParts& parts, int64_t layer) {
  const bool is_fused = r.has_tensor(block_name(layer, "attn_qkv"));
  const bool has_bias = parts.qkv_bias || r.has_tensor(block_name(layer, "attn_q"), "bias");
  SelfAttention w = is_fused ? bind_fused_attention(r, p, layer)
                             : bind_self_attention(r, p, layer, has_bias ? QkvBias::present : QkvBias::absent);
  w.o_bias = r.optional_vector(block_name(layer, "attn_output"), p.width, "bias");
  return w;
}

// Some files join gate and up in one matrix, which is called up.
GatedFeedForward bind_dense(WeightReader& r, const DecoderParams& p, const LayerParts& parts, int64_t layer) {
  const std::string up = block_name(layer, "ffn_up"), down = block_name(layer, "ffn_down");
  const int64_t f = p.feed_forward;
  if (!parts.gated) {
    return {.up = r.matrix(up, f, p.width),
            .down = r.matrix(down, p.width, f),
            .up_bias = r.optional_vector(up, f, "bias"),
            .down_bias = r.optional_vector(down, p.width, "bias")};
  }
  if (!r.has_tensor(block_name(layer, "ffn_gate"))) {
    return {.gate = r.matrix_rows(up, {0, f, 2 * f}, p.width),
            .up = r.matrix_rows(up, {f, f, 2 * f}, p.width),
            .down = r.matrix(down, p.width, f)};
  }
  GatedFeedForward w = bind_feed_forward(r, p, layer);
  w.gate_bias = r.optional_vector(block_name(layer, "ffn_gate"), f, "bias");
  w.up_bias = r.optional_vector(up, f, "bias");
  w.down_bias = r.optional_vector(down, p.width, "bias");
  return w;
}

MixtureOfExperts bind_experts(WeightReader& r, const DecoderParams& p, const Routing& routing, int64_t layer) {
  const int64_t experts = p.experts, f = p.expert_feed_forward;
  const std::string router = block_name(layer, "ffn_gate_inp"), bias = block_name(layer, "exp_probs_b");
  MixtureOfExperts w{.router = r.matrix(router, experts, p.width),
                     .gate = r.experts(block_name(layer, "ffn_gate_exps"), experts, f, p.width),
                     .up = r.experts(block_name(layer, "ffn_up_exps"), experts, f, p.width),
                     .down = r.experts(block_name(layer, "ffn_down_exps"), experts, p.width, f),
                     .selection_bias = r.optional_vector(bias, experts, "bias"),
                     .routing = routing,
                     .shared = {},
                     .shared_gate = {}};
  if (r.has_tensor(block_name(layer, "ffn_gate_shexp"))) {
    const int64_t shared = p.shared_feed_forward;
    w.shared = GatedFeedForward{.gate = r.matrix(block_name(layer, "ffn_gate_shexp"), shared, p.width),
                                .up = r.matrix(block_name(layer, "ffn_up_shexp"), shared, p.width),
                                .down = r.matrix(block_name(layer, "ffn_down_shexp"), p.width, shared)};
    w.shared_gate = r.optional_vector(block_name(layer, "ffn_gate_inp_shexp"), p.width);
  }
  return w;
}

Value attention(Recorder& rec, const DecoderLayer& w, const DecoderParams& p, const LayerStyle& style, Value x) {
  const SelfAttention& a = w.attention;
  Value q = rec.matmul(x, a.q, a.q_bias), k = rec.matmul(x, a.k, a.k_bias);
  const Value v = rec.matmul(x, a.v, a.v_bias);
  const auto norm = [&] {
    if (w.q_norm.present()) q = rec.rms_norm_heads(q, w.q_norm, p.eps);
    if (w.k_norm.present()) k = rec.rms_norm_heads(k, w.k_norm, p.eps);
  };
  if (!style.norms_after_rope) norm();
  if (style.rope != kNoRope) {
    const int query_rope = style.query_rope != kNoRope ? style.query_rope : style.rope;
    q = rec.rope(q, query_rope, static_cast<int>(p.head_dim));
    k = rec.rope(k, style.rope, static_cast<int>(p.head_dim));
  }
  if (style.norms_after_rope) norm();
  const float usual = 1.0F / std::sqrt(static_cast<float>(p.head_dim));
  const Value mixed = rec.attention({.q = q,
                                     .k = k,
                                     .v = v,
                                     .layer = rec.kv_layer({p.kv_heads, p.head_dim}),
                                     .heads = static_cast<int>(p.heads),
                                     .window = style.window,
                                     .scale = style.attention_scale > 0 ? style.attention_scale : usual,
                                     .cap = style.attention_cap});
  return rec.matmul(mixed, a.o, a.o_bias);
}

Value mixture(Recorder& rec, const MixtureOfExperts& w, Activation activation, Value x) {
  const Value y = rec.experts({.x = x,
                               .logits = rec.matmul(x, w.router),
                               .gate = w.gate,
                               .up = w.up,
                               .down = w.down,
                               .selection_bias = w.selection_bias,
                               .routing = w.routing,
                               .activation = activation});
  if (!w.shared) return y;
  const Value shared = feed_forward(rec, *w.shared, x, activation);
  return rec.add(y, w.shared_gate.present() ? rec.sigmoid_gate(shared, x, w.shared_gate) : shared);
}

Value feed_forward(Recorder& rec, const DecoderLayer& w, Activation activation, Value x) {
  return w.experts ? mixture(rec, *w.experts, activation, x) : feed_forward(rec, *w.ffn, x, activation);
}

}  // namespace

Norm bind_norm(WeightReader& r, NormKind kind, const std::string& name, int64_t width) {
  Norm norm{.kind = kind, .present = true, .weight = {}, .bias = {}};
  if (kind == NormKind::unweighted) return norm;
  norm.weight = r.vector(name, width);
  if (kind == NormKind::layer) norm.bias = r.optional_vector(name, width, "bias");
  return norm;
}

Value apply_norm(Recorder& rec, const Norm& norm, Value x, float eps) {
  if (!norm.present) return x;
  return norm.kind == NormKind::rms ? rec.rms_norm(x, norm.weight, eps)
                                    : rec.layer_norm(x, norm.weight, norm.bias, eps);
}

DecoderLayer bind_decoder_layer(WeightReader& r, const DecoderParams& p, const LayerParts& parts, int64_t layer) {
  const auto norm = [&](bool has, const char* name) {
    return has ? bind_norm(r, parts.norm, block_name(layer, name), p.width) : Norm();
  };
  const auto qk_norm = [&](const char* name, int64_t heads) {
    if (parts.qk_norm == QkNorm::absent) return Weight();
    return r.vector(block_name(layer, name), parts.qk_norm == QkNorm::rows ? heads * p.head_dim : p.head_dim);
  };
  DecoderLayer w{.attn_norm = norm(parts.norms_before, "attn_norm"),
                 .attention = bind_attention(r, p, parts, layer),
                 .q_norm = qk_norm("attn_q_norm", p.heads),
                 .k_norm = qk_norm("attn_k_norm", p.kv_heads),
                 .post_attn_norm = norm(parts.norms_after, "post_attention_norm"),
                 .ffn_norm = norm(parts.norms_before && parts.ffn_norm != nullptr, parts.ffn_norm),
                 .ffn = {},
                 .experts = {},
                 .post_ffn_norm = norm(parts.norms_after, "post_ffw_norm")};
  if (p.experts > 0 && parts.routing && r.has_tensor(block_name(layer, "ffn_gate_inp")))
    w.experts = bind_experts(r, p, *parts.routing, layer);
  else
    w.ffn = bind_dense(r, p, parts, layer);
  return w;
}

Value decoder_layer(Recorder& rec, const DecoderLayer& w, const DecoderParams& p, const LayerStyle& style, Value x) {
  const Value h = apply_norm(rec, w.attn_norm, x, p.eps);
  const Value mixed = apply_norm(rec, w.post_attn_norm, attention(rec, w, p, style, h), p.eps);
  if (style.parallel) {
    const Value own = w.ffn_norm.present ? apply_norm(rec, w.ffn_norm, x, p.eps) : h;
    return rec.add(rec.add(x, mixed), feed_forward(rec, w, style.activation, own));
  }
  x = rec.add(x, mixed, style.residual_scale);
  const Value y = feed_forward(rec, w, style.activation, apply_norm(rec, w.ffn_norm, x, p.eps));
  return rec.add(x, apply_norm(rec, w.post_ffn_norm, y, p.eps), style.residual_scale);
}

}  // namespace nanomind
