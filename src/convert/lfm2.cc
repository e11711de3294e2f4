// SPDX-License-Identifier: Apache-2.0
// LFM2 (GGUF arch "lfm2"): gated short convolutions among layers of attention; which is which stands in the list of
// key/value heads, 0 for convolutions.
#include <fmt/format.h>

#include "convert/decoder_keys.h"
#include "convert/family.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"lfm2"};
constexpr NameRule kNames[] = {
    {"embedding_norm", "token_embd_norm"},
    {"layers.#.operator_norm", "blk.#.attn_norm"},
    {"layers.#.ffn_norm", "blk.#.ffn_norm"},
    {"layers.#.self_attn.out_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_layernorm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_layernorm", "blk.#.attn_k_norm"},
    {"layers.#.conv.conv", "blk.#.shortconv.conv", Change::squeeze},
    {"layers.#.conv.in_proj", "blk.#.shortconv.in_proj"},
    {"layers.#.conv.out_proj", "blk.#.shortconv.out_proj"},
    {"layers.#.feed_forward.w1", "blk.#.ffn_gate"},
    {"layers.#.feed_forward.w2", "blk.#.ffn_down"},
    {"layers.#.feed_forward.w3", "blk.#.ffn_up"},
};

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  TRY(describe_decoder(checkpoint, keys, tensors));
  // The settings' width is adjusted by rules of the publisher; the tensor has the outcome.
  const SafetensorsTensor* gate = checkpoint.weights.find("model.layers.0.feed_forward.w1.weight");
  if (gate == nullptr)
    return fail(ErrorCode::corrupt, "The model has no tensor model.layers.0.feed_forward.w1.weight.");
  keys.count("feed_forward_length", gate->rows());
  const int64_t kv_heads = TRY(config.integer("num_key_value_heads"));
  std::vector<int32_t> heads;
  for (const std::string& layer : config.texts("layer_types"))
    heads.push_back(layer == "full_attention" ? static_cast<int32_t>(kv_heads) : 0);
  if (static_cast<int64_t>(heads.size()) != TRY(config.integer("num_hidden_layers")))
    return fail(ErrorCode::corrupt, fmt::format("{} has no layer_types for every layer.", config.subject()));
  keys.add("attention.head_count_kv", heads);
  keys.count("shortconv.l_cache", TRY(config.integer("conv_L_cache")));
  return {};
}

}  // namespace

const Family kLfm2{.architecture = "lfm2", .model_types = kTypes, .names = kNames, .describe = describe};

}  // namespace nanomind
