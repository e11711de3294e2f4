// SPDX-License-Identifier: Apache-2.0
// Llama decoder (GGUF arch "llama"): RMSNorm, grouped-query attention with rotary positions, SwiGLU. Llama 2 paper,
// arXiv 2307.09288; GGUF files permute q and k so that rotated pairs are adjacent.
#include "models/architectures.h"
#include "models/blocks/decoder.h"

namespace nanomind {
namespace {

struct Layer {
  Weight attn_norm;
  SelfAttention attention;
  Weight ffn_norm;
  GatedFeedForward ffn;
};

Layer bind_layer(WeightReader& r, const DecoderParams& p, int64_t i) {
  return {.attn_norm = r.vector(block_name(i, "attn_norm"), p.width),
          .attention = bind_self_attention(r, p, i, QkvBias::absent),
          .ffn_norm = r.vector(block_name(i, "ffn_norm"), p.width),
          .ffn = bind_feed_forward(r, p, i)};
}

// x: [T, E] -> [T, E]
Value layer(Recorder& rec, const Layer& w, const DecoderParams& p, int rope, Value x) {
  x = rec.add(x, self_attention(rec, w.attention, p, rope, rec.rms_norm(x, w.attn_norm, p.eps)));
  return rec.add(x, feed_forward(rec, w.ffn, rec.rms_norm(x, w.ffn_norm, p.eps), Activation::silu));
}

}  // namespace

Result<Model> build_llama(const GgufFile& file) {
  Recorder rec;
  WeightReader reader(file, rec, "llama");
  const DecoderParams p = read_decoder_params(reader, file);
  const int64_t rotated = reader.count_or("rope.dimension_count", p.head_dim, 2, p.head_dim);
  const double theta = reader.number_or("rope.freq_base", 10000.0);
  if (reader.count_or("expert_count", 0, 0, 1 << 16) > 0) reader.complain("Mixtures of experts are not supported yet.");
  if (reader.has_tensor("rope_freqs")) reader.complain("Scaled rotary frequencies (rope_freqs) are not supported yet.");
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_layer(reader, p, i));
  const Weight norm = reader.vector("output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  const int rope = rec.rope_table(rope_table(RopePairs::adjacent, theta, rotated));
  Value x = rec.embed(embedding);
  for (const Layer& w : layers) x = layer(rec, w, p, rope, x);
  const Value logits = output_head(rec, x, norm, head, p.eps);
  return finish_model("llama", p, std::move(rec), logits);
}

}  // namespace nanomind
