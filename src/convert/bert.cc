// SPDX-License-Identifier: Apache-2.0
// BERT and sentence embedders made of it (GGUF arch "bert").
#include <fmt/format.h>

#include "convert/family.h"
#include "convert/pooling.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"bert"};
constexpr NameRule kNames[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
    {"embeddings.position_ids", "", Change::leave_out},
    {"encoder.layer.#.attention.self.query", "blk.#.attn_q"},
    {"encoder.layer.#.attention.self.key", "blk.#.attn_k"},
    {"encoder.layer.#.attention.self.value", "blk.#.attn_v"},
    {"encoder.layer.#.attention.output.dense", "blk.#.attn_output"},
    {"encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"},
    {"encoder.layer.#.intermediate.dense", "blk.#.ffn_up"},
    {"encoder.layer.#.output.dense", "blk.#.ffn_down"},
    {"encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm"},
    // Of the pretraining tasks, which embedders do not use.
    {"pooler.dense", "", Change::leave_out},
};

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>&) {
  const Config& config = checkpoint.config;
  const std::string positions = config.text_or("position_embedding_type", "absolute");
  const std::string activation = config.text_or("hidden_act", "gelu");
  if (positions != "absolute" || activation != "gelu") {
    return fail(ErrorCode::unsupported,
                fmt::format("BERT with '{}' positions and '{}' is not converted, only with 'absolute' and 'gelu'.",
                            positions, activation));
  }
  keys.count("context_length", TRY(config.integer("max_position_embeddings")));
  keys.count("embedding_length", TRY(config.integer("hidden_size")));
  keys.count("feed_forward_length", TRY(config.integer("intermediate_size")));
  keys.count("block_count", TRY(config.integer("num_hidden_layers")));
  keys.count("attention.head_count", TRY(config.integer("num_attention_heads")));
  keys.number("attention.layer_norm_epsilon", TRY(config.number("layer_norm_eps")));
  keys.add("attention.causal", false);
  keys.count("vocab_size", TRY(config.integer("vocab_size")));
  return describe_pooling(checkpoint, keys);
}

}  // namespace

const Family kBert{
    .architecture = "bert", .model_types = kTypes, .names = kNames, .has_decoder_names = false, .describe = describe};

}  // namespace nanomind
