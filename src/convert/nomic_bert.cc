// SPDX-License-Identifier: Apache-2.0
// Nomic Embed (GGUF arch "nomic-bert"), whose settings have the names of GPT-2 or those of transformers.
#include <fmt/format.h>

#include <algorithm>

#include "convert/decoder_keys.h"
#include "convert/family.h"
#include "convert/pooling.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"nomic_bert"};
constexpr NameRule kNames[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"emb_ln", "token_embd_norm"},
    {"encoder.layers.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"encoder.layers.#.attn.out_proj", "blk.#.attn_output"},
    {"encoder.layers.#.norm1", "blk.#.attn_output_norm"},
    {"encoder.layers.#.mlp.fc11", "blk.#.ffn_up"},
    {"encoder.layers.#.mlp.fc12", "blk.#.ffn_gate"},
    {"encoder.layers.#.mlp.fc2", "blk.#.ffn_down"},
    {"encoder.layers.#.norm2", "blk.#.layer_output_norm"},
};

// A setting by either name.
Result<int64_t> integer(const Config& config, const char* name, const char* other) {
  return config.find(name) != nullptr ? config.integer(name) : config.integer(other);
}

// What files of this architecture cannot say.
Result<void> check_settings(const Config& config) {
  const std::string activation = config.text_or("activation_function", config.text_or("hidden_act", "swiglu"));
  const bool is_usual = (activation == "swiglu" || activation == "silu") && !config.flag_or("causal", false) &&
                        !config.flag_or("prenorm", false) && !config.flag_or("rotary_emb_interleaved", false) &&
                        config.number_or("rotary_emb_fraction", 1.0) == 1.0 &&
                        config.find("rotary_emb_scale_base") == nullptr &&
                        config.integer_or("moe_every_n_layers", 0) == 0;
  if (is_usual) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{} differs from Nomic Embed 1 and 1.5 in more than sizes.", config.subject()));
}

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>&) {
  const Config& config = checkpoint.config;
  TRY(check_settings(config));
  const int64_t positions = TRY(integer(config, "n_positions", "max_position_embeddings"));
  keys.count("context_length", std::min(positions, config.integer_or("max_trained_positions", 2048)));
  keys.count("embedding_length", TRY(integer(config, "n_embd", "hidden_size")));
  keys.count("feed_forward_length", TRY(integer(config, "n_inner", "intermediate_size")));
  keys.count("block_count", TRY(integer(config, "n_layer", "num_hidden_layers")));
  keys.count("attention.head_count", TRY(integer(config, "n_head", "num_attention_heads")));
  keys.number("attention.layer_norm_epsilon",
              config.number_or("layer_norm_epsilon", config.number_or("layer_norm_eps", 1e-12)));
  keys.add("attention.causal", false);
  keys.count("vocab_size", TRY(config.integer("vocab_size")));
  const double base = config.find("rotary_emb_base") != nullptr ? TRY(config.number("rotary_emb_base"))
                                                                : read_rotary_settings(config).theta;
  keys.number("rope.freq_base", base);
  return describe_pooling(checkpoint, keys);
}

}  // namespace

const Family kNomicBert{.architecture = "nomic-bert",
                        .model_types = kTypes,
                        .names = kNames,
                        .shared = SharedNames::none,
                        .describe = describe};

}  // namespace nanomind
