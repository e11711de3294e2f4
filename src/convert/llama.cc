// SPDX-License-Identifier: Apache-2.0
// Llama and those that are built like it (GGUF archs "llama", "smollm3", "granite"): programs of this format rotate
// neighbours, so rows of q and k are reordered.
#include <fmt/format.h>

#include "convert/decoder_keys.h"
#include "convert/family.h"

namespace nanomind {
namespace {

constexpr NameRule kNames[] = {
    {"layers.#.self_attn.q_proj", "blk.#.attn_q", Change::query_heads},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k", Change::key_heads},
    // Mixtral
    {"layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.block_sparse_moe.experts.@.w1", "blk.#.ffn_gate_exps"},
    {"layers.#.block_sparse_moe.experts.@.w2", "blk.#.ffn_down_exps"},
    {"layers.#.block_sparse_moe.experts.@.w3", "blk.#.ffn_up_exps"},
};
constexpr std::string_view kLlamaTypes[] = {"llama", "mistral", "mixtral"};
constexpr const char* kLlamaSettings = R"({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "vocab_size": 32000})";
constexpr std::string_view kSmolLm3Types[] = {"smollm3"};
constexpr std::string_view kGraniteTypes[] = {"granite"};

Result<void> describe_llama(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  TRY(describe_decoder(checkpoint, keys, tensors));
  if (const int64_t window = checkpoint.config.integer_or("sliding_window", 0); window > 0)
    keys.count("attention.sliding_window", window);
  return {};
}

// Files do not say which layers have no positions: every fourth.
Result<void> describe_smollm3(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const std::vector<int64_t> rotated = checkpoint.config.integers("no_rope_layers");
  for (size_t i = 0; i < rotated.size(); ++i) {
    if ((rotated[i] != 0) != ((i + 1) % 4 != 0)) {
      return fail(ErrorCode::unsupported,
                  "SmolLM3 with other layers without positions than every fourth is not converted.");
    }
  }
  return describe_decoder(checkpoint, keys, tensors);
}

Result<void> describe_granite(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  TRY(describe_decoder(checkpoint, keys, tensors));
  const Config& config = checkpoint.config;
  keys.number("embedding_scale", TRY(config.number("embedding_multiplier")));
  keys.number("attention.scale", TRY(config.number("attention_multiplier")));
  keys.number("residual_scale", TRY(config.number("residual_multiplier")));
  keys.number("logit_scale", TRY(config.number("logits_scaling")));
  return {};
}

}  // namespace

const Family kLlama{.architecture = "llama",
                    .model_types = kLlamaTypes,
                    .names = kNames,
                    .describe = describe_llama,
                    .class_settings = kLlamaSettings};
const Family kSmolLm3{
    .architecture = "smollm3", .model_types = kSmolLm3Types, .names = kNames, .describe = describe_smollm3};
const Family kGranite{
    .architecture = "granite", .model_types = kGraniteTypes, .names = kNames, .describe = describe_granite};

}  // namespace nanomind
