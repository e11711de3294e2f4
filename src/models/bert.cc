// SPDX-License-Identifier: Apache-2.0
// Encoders (GGUF archs "bert" and "nomic-bert"): BERT (arXiv 1810.04805) and XLM-RoBERTa, whose files have the same
// tensors, with learnt positions and GELU; Nomic Embed (2402.01613) with rotary positions and SwiGLU. Norms follow
// their sums. Result: hidden states, or, of rerankers, the score that the first token's state gets.
#include <fmt/format.h>

#include <cmath>

#include "models/architectures.h"
#include "models/blocks/decoder.h"
#include "models/blocks/rope.h"

namespace nanomind {
namespace {

struct Norm {
  Weight weight, bias;
};
struct Product {
  Weight weight, bias;  // the bias may be absent
};
struct Layer {
  Product q, k, v, o;
  Norm after_attention;
  Product up, gate, down;  // gate is absent in BERT
  Norm after_ffn;
};

struct Encoder {
  WeightReader& r;
  DecoderParams p;

  Norm norm(const std::string& name) const { return {r.vector(name, p.width), r.vector(name, p.width, "bias")}; }
  Product product(const std::string& name, int64_t rows, int64_t columns) const {
    return {r.matrix(name, rows, columns), r.optional_vector(name, rows, "bias")};
  }
  // A third of joined q, k and v.
  Product joined(const std::string& name, int64_t index) const {
    const WeightReader::Rows rows{index * p.width, p.width, 3 * p.width};
    return {r.matrix_rows(name, rows, p.width),
            r.has_tensor(name, "bias") ? r.vector_rows(name, rows, "bias") : Weight()};
  }

  Layer bind_layer(int64_t i) const {
    Layer w;
    const std::string qkv = block_name(i, "attn_qkv");
    if (r.has_tensor(qkv)) {
      w.q = joined(qkv, 0), w.k = joined(qkv, 1), w.v = joined(qkv, 2);
    } else {
      w.q = product(block_name(i, "attn_q"), p.width, p.width);
      w.k = product(block_name(i, "attn_k"), p.width, p.width);
      w.v = product(block_name(i, "attn_v"), p.width, p.width);
    }
    w.o = product(block_name(i, "attn_output"), p.width, p.width);
    w.after_attention = norm(block_name(i, "attn_output_norm"));
    w.up = product(block_name(i, "ffn_up"), p.feed_forward, p.width);
    if (r.has_tensor(block_name(i, "ffn_gate"))) w.gate = product(block_name(i, "ffn_gate"), p.feed_forward, p.width);
    w.down = product(block_name(i, "ffn_down"), p.width, p.feed_forward);
    w.after_ffn = norm(block_name(i, "layer_output_norm"));
    return w;
  }

  // x: [T, E] -> [T, E]; rope: -1 where positions were added to the embeddings.
  Value layer(Recorder& rec, const Layer& w, int rope, Value x) const {
    const auto d = static_cast<int>(p.head_dim);
    Value q = rec.matmul(x, w.q.weight, w.q.bias), k = rec.matmul(x, w.k.weight, w.k.bias);
    const Value v = rec.matmul(x, w.v.weight, w.v.bias);
    if (rope >= 0) q = rec.rope(q, rope, d), k = rec.rope(k, rope, d);
    const Value mixed = rec.attention({.q = q,
                                       .k = k,
                                       .v = v,
                                       .layer = rec.kv_layer({p.heads, p.head_dim}),
                                       .heads = static_cast<int>(p.heads),
                                       .scale = 1.0F / std::sqrt(static_cast<float>(p.head_dim)),
                                       .mask = Mask::none});
    x = rec.add(x, rec.matmul(mixed, w.o.weight, w.o.bias));
    x = rec.layer_norm(x, w.after_attention.weight, w.after_attention.bias, p.eps);
    const Value up = rec.matmul(x, w.up.weight, w.up.bias);
    const Value hidden = w.gate.weight.present()
                             ? rec.gated(rec.matmul(x, w.gate.weight, w.gate.bias), up, Activation::silu)
                             : rec.activate(up, Activation::gelu);
    x = rec.add(x, rec.matmul(hidden, w.down.weight, w.down.bias));
    return rec.layer_norm(x, w.after_ffn.weight, w.after_ffn.bias, p.eps);
  }
};

DecoderParams read_params(WeightReader& r, const GgufFile& file) {
  DecoderParams p;
  p.layers = r.count("block_count", 1, 1024);
  p.width = r.count("embedding_length", 1, 1 << 20);
  p.feed_forward = r.count("feed_forward_length", 1, 1 << 20);
  p.heads = r.count("attention.head_count", 1, 1024);
  p.kv_heads = p.heads;
  p.head_dim = p.width / p.heads;
  p.context_length = r.count("context_length", 1, 1 << 20);
  p.eps = static_cast<float>(r.number("attention.layer_norm_epsilon"));
  p.result = read_result(r);
  if (p.result.kind == ResultKind::logits) p.result = {ResultKind::embedding, Pooling::mean};
  if (p.result.kind == ResultKind::rank) p.result.pooling = Pooling::first;  // what its classifier was trained on
  if (p.width % p.heads != 0 || p.head_dim % 8 != 0 || p.head_dim > kMaxHeadDim)
    r.complain(fmt::format("{} heads do not fit a width of {}.", p.heads, p.width));
  const GgufTensor* table = file.tensor("token_embd.weight");
  p.vocabulary = table != nullptr && table->shape.rank == 2 ? table->shape.rows() : 1;
  return p;
}

Result<Model> build_encoder(const GgufFile& file, const std::string& architecture) {
  Recorder rec;
  WeightReader reader(file, rec, architecture);
  const Encoder e{reader, read_params(reader, file)};
  const DecoderParams& p = e.p;
  TRY(reader.check());

  const Weight tokens = reader.matrix("token_embd", p.vocabulary, p.width);
  const bool has_types = reader.has_tensor("token_types"), has_positions = reader.has_tensor("position_embd");
  const GgufTensor* kinds = file.tensor("token_types.weight");
  const Weight types =
      has_types ? reader.matrix("token_types", kinds->shape.rank == 2 ? kinds->shape.rows() : 1, p.width) : Weight();
  const Weight positions = has_positions ? reader.matrix("position_embd", p.context_length, p.width) : Weight();
  const Norm embedding_norm = e.norm("token_embd_norm");
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(e.bind_layer(i));
  const bool ranks = p.result.kind == ResultKind::rank;
  const Product dense = ranks && reader.has_tensor("cls") ? e.product("cls", p.width, p.width) : Product();
  const Product head = ranks ? e.product("cls.output", 1, p.width) : Product();
  int rope = -1;
  if (!has_positions) {
    rope = rec.rope_table(read_rotary(reader, {.pairs = RopePairs::halves,
                                               .theta = 1000.0,
                                               .rotated = p.head_dim,
                                               .head_dim = p.head_dim,
                                               .trained_context = p.context_length})
                              .info);
  }
  TRY(reader.check());

  Value x = rec.embed(tokens);
  if (has_types) x = rec.add(x, rec.embed(types, 1.0F, Lookup::first));
  if (has_positions) x = rec.add(x, rec.embed(positions, 1.0F, Lookup::position));
  x = rec.layer_norm(x, embedding_norm.weight, embedding_norm.bias, p.eps);
  for (const Layer& w : layers) x = e.layer(rec, w, rope, x);
  x = rec.select_outputs(x);
  if (dense.weight.present()) x = rec.activate(rec.matmul(x, dense.weight, dense.bias), Activation::tanh);
  if (ranks) x = rec.matmul(x, head.weight, head.bias);
  Model model = finish_model(architecture, p, std::move(rec), x);
  model.whole_sequences = true;
  return model;
}

}  // namespace

Result<Model> build_bert(const GgufFile& file) { return build_encoder(file, "bert"); }
Result<Model> build_nomic_bert(const GgufFile& file) { return build_encoder(file, "nomic-bert"); }

}  // namespace nanomind
