// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 decoder (GGUF arch "qwen2"): as Llama, with biases on q, k and v and half-split rotary pairs.
// Qwen2 report, arXiv 2407.10671.
#include "models/architectures.h"
#include "models/blocks/decoder.h"

namespace nanomind {

Result<Model> build_qwen2(const GgufFile& file) {
  Recorder rec;
  WeightReader reader(file, rec, "qwen2");
  const DecoderParams p = read_decoder_params(reader, file);
  const double theta = reader.number_or("rope.freq_base", 1e6);
  TRY(reader.check());

  const Weight embedding = reader.matrix("token_embd", p.vocabulary, p.width);
  std::vector<PreNormLayer> layers;
  for (int64_t i = 0; i < p.layers; ++i) layers.push_back(bind_pre_norm_layer(reader, p, i, QkvBias::present));
  const Weight norm = reader.vector("output_norm", p.width);
  const Weight head = bind_head(reader, p, embedding);
  TRY(reader.check());

  const int rope = rec.rope_table(rope_table(RopePairs::halves, theta, p.head_dim));
  Value x = rec.embed(embedding);
  for (const PreNormLayer& w : layers) x = pre_norm_layer(rec, w, p, rope, x);
  const Value logits = output_head(rec, x, norm, head, p.eps);
  return finish_model("qwen2", p, std::move(rec), logits);
}

}  // namespace nanomind
