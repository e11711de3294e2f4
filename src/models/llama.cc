// SPDX-License-Identifier: Apache-2.0
// Llama decoder (GGUF arch "llama"): RMSNorm, grouped-query attention with rotary positions, SwiGLU. Llama 2 paper,
// arXiv 2307.09288; GGUF files permute q and k so that rotated pairs are adjacent.
#include "models/architectures.h"
#include "models/blocks/decoder.h"

namespace nanomind {

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
  std::vector<PreNormLayer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_pre_norm_layer(reader, p, i, QkvBias::absent));
  const Weight norm = reader.vector("output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  const int rope = rec.rope_table(rope_table(RopePairs::adjacent, theta, rotated));
  Value x = rec.embed(embedding);
  for (const PreNormLayer& w : layers) x = pre_norm_layer(rec, w, p, rope, x);
  const Value logits = output_head(rec, x, norm, head, p.eps);
  return finish_model("llama", p, std::move(rec), logits);
}

}  // namespace nanomind
