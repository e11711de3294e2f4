// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace nanomind {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

// V is the number of rows of the embedding; the tokenizer's list is checked against it when both are known.
int64_t read_vocabulary(WeightReader& reader, const GgufFile& file, int64_t width) {
  const GgufTensor* table = file.tensor("token_embd.weight");
  if (table == nullptr || table->shape.rank != 2 || table->shape.columns() != width) {
    reader.complain("Tensor token_embd.weight is missing or is not [V, " + std::to_string(width) + "].");
    return 1;
  }
  return table->shape.rows();
}

}  // namespace

ModelResult read_result(WeightReader& reader) {
  switch (reader.count_or("pooling_type", 0, 0, 4)) {
    case 1: return {ResultKind::embedding, Pooling::mean};
    case 2: return {ResultKind::embedding, Pooling::first};
    case 3: return {ResultKind::embedding, Pooling::last};
    case 4: return {ResultKind::rank, Pooling::last};
    default: return {};
  }
}

DecoderParams read_decoder_params(WeightReader& reader, const GgufFile& file) {
  DecoderParams p;
  p.layers = reader.count("block_count", 1, 1024);
  p.layers -= reader.count_or("nextn_predict_layers", 0, 0, p.layers - 1);  // drafts, which come last
  p.width = reader.count("embedding_length", 1, kMaxWidth);
  p.feed_forward = reader.largest("feed_forward_length", 0, kMaxWidth);
  p.heads = reader.count("attention.head_count", 1, 1024);
  p.kv_heads = reader.largest_or("attention.head_count_kv", p.heads, 1, 1024);
  p.head_dim = reader.count_or("attention.key_length", p.width / p.heads, 1, kMaxHeadDim);
  p.context_length = reader.count("context_length", 1, int64_t{1} << 40);
  const bool is_layer_norm = reader.has("attention.layer_norm_epsilon");
  p.eps = static_cast<float>(
      reader.number(is_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"));
  p.experts = reader.count_or("expert_count", 0, 0, 1 << 16);
  p.expert_feed_forward = reader.count_or("expert_feed_forward_length", p.feed_forward, 1, kMaxWidth);
  const int64_t shared = reader.count_or("expert_shared_count", 1, 0, 1024);
  p.shared_feed_forward =
      reader.count_or("expert_shared_feed_forward_length", shared * p.expert_feed_forward, 0, int64_t{1} << 30);
  p.result = read_result(reader);
  p.vocabulary = read_vocabulary(reader, file, p.width);
  if (p.heads % p.kv_heads != 0) {
    reader.complain(fmt::format("{} query heads cannot share {} key/value heads.", p.heads, p.kv_heads));
  }
  if (p.head_dim % 8 != 0)
    reader.complain(fmt::format("Heads of width {} are not supported, only multiples of 8.", p.head_dim));
  if (reader.count_or("attention.value_length", p.head_dim, 1, kMaxHeadDim) != p.head_dim) {
    reader.complain("Keys and values of different width are not supported.");
  }
  return p;
}

SelfAttention bind_self_attention(WeightReader& reader, const DecoderParams& p, int64_t layer, QkvBias bias) {
  const int64_t q = p.heads * p.head_dim, kv = p.kv_heads * p.head_dim;
  SelfAttention w{.q = reader.matrix(block_name(layer, "attn_q"), q, p.width),
                  .k = reader.matrix(block_name(layer, "attn_k"), kv, p.width),
                  .v = reader.matrix(block_name(layer, "attn_v"), kv, p.width),
                  .o = reader.matrix(block_name(layer, "attn_output"), p.width, q),
                  .q_bias = {},
                  .k_bias = {},
                  .v_bias = {},
                  .o_bias = {}};
  if (bias == QkvBias::present) {
    w.q_bias = reader.vector(block_name(layer, "attn_q"), q, "bias");
    w.k_bias = reader.vector(block_name(layer, "attn_k"), kv, "bias");
    w.v_bias = reader.vector(block_name(layer, "attn_v"), kv, "bias");
  }
  return w;
}

GatedFeedForward bind_feed_forward(WeightReader& reader, const DecoderParams& p, int64_t layer) {
  return {.gate = reader.matrix(block_name(layer, "ffn_gate"), p.feed_forward, p.width),
          .up = reader.matrix(block_name(layer, "ffn_up"), p.feed_forward, p.width),
          .down = reader.matrix(block_name(layer, "ffn_down"), p.width, p.feed_forward)};
}

Value feed_forward(Recorder& rec, const GatedFeedForward& w, Value x, Activation activation) {
  if (!w.gate.present())
    return rec.matmul(rec.activate(rec.matmul(x, w.up, w.up_bias), activation), w.down, w.down_bias);
  const Value gate = rec.matmul(x, w.gate, w.gate_bias);
  const Value up = rec.matmul(x, w.up, w.up_bias);
  return rec.matmul(rec.gated(gate, up, activation), w.down, w.down_bias);
}

Value head_product(Recorder& rec, Value x, Weight head, Weight bias) {
  return head.present() ? rec.matmul(x, head, bias) : x;
}

Value output_head(Recorder& rec, Value x, Weight norm, Weight head, float eps) {
  return head_product(rec, rec.rms_norm(rec.select_outputs(x), norm, eps), head, {});
}

Weight bind_head(WeightReader& reader, const DecoderParams& p, Weight embedding) {
  if (p.result.kind == ResultKind::embedding) return {};
  if (p.result.kind == ResultKind::rank) return reader.matrix("cls.output", reader.tensor_rows("cls.output"), p.width);
  return reader.has_tensor("output") ? reader.matrix("output", p.vocabulary, p.width) : embedding;
}

Model finish_model(std::string architecture, const DecoderParams& p, Recorder&& rec, Value result) {
  return {.architecture = std::move(architecture),
          .context_length = p.context_length,
          .vocabulary = p.vocabulary,
          .layers = p.layers,
          .width = p.width,
          .result = p.result,
          .program = std::move(rec).finish(result)};
}

}  // namespace nanomind
