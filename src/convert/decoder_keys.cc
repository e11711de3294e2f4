// SPDX-License-Identifier: Apache-2.0
#include "convert/decoder_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace nanomind {
namespace {

// Llama 3.1: by how much the wave of each pair becomes longer. (Formula of the model's publisher: waves much shorter
// than the original context stay, much longer ones are stretched by the factor, between them linearly in the turns.)
OutputTensor rope_factors(const RotarySettings& rotary, int64_t rotated) {
  const double low = rotary.all.number_or("low_freq_factor", 1.0);
  const double high = rotary.all.number_or("high_freq_factor", 4.0);
  const double original = static_cast<double>(rotary.original_context != 0 ? rotary.original_context : 8192);
  OutputTensor tensor{.name = "rope_freqs.weight", .shape = {rotated / 2}};
  for (int64_t i = 0; i < rotated / 2; ++i) {
    const double wave =
        2.0 * std::numbers::pi * std::pow(rotary.theta, 2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    const double turns = original / wave;
    const double smooth = (turns - low) / (high - low);
    const double factor = turns > high  ? 1.0
                          : turns < low ? rotary.factor
                                        : 1.0 / ((1.0 - smooth) / rotary.factor + smooth);
    tensor.constant.push_back(static_cast<float>(factor));
  }
  return tensor;
}

Result<void> describe_scaling(const RotarySettings& rotary, int64_t rotated, FamilyKeys& keys,
                              std::vector<OutputTensor>& tensors) {
  if (rotary.type == "default" || rotary.type == "mrope" || rotary.type == "longrope") return {};
  if (rotary.type == "llama3") {
    tensors.push_back(rope_factors(rotary, rotated));
    return {};
  }
  if (rotary.type != "linear" && rotary.type != "yarn") {
    return fail(ErrorCode::unsupported,
                fmt::format("Rotary positions that are scaled by '{}' are not converted.", rotary.type));
  }
  keys.add("rope.scaling.type", rotary.type);
  keys.number("rope.scaling.factor", rotary.factor);
  if (rotary.type == "linear") return {};
  if (rotary.original_context == 0)
    return fail(ErrorCode::corrupt, fmt::format("{} has no original_max_position_embeddings.", rotary.all.subject()));
  keys.count("rope.scaling.original_context_length", rotary.original_context);
  if (const auto fast = rotary.all.number("beta_fast")) keys.number("rope.scaling.yarn_beta_fast", *fast);
  if (const auto slow = rotary.all.number("beta_slow")) keys.number("rope.scaling.yarn_beta_slow", *slow);
  return {};
}

}  // namespace

RotarySettings read_rotary_settings(const Config& config) {
  Config object = config.part("rope_parameters");
  // Where kinds of layers differ, those that see everything are meant.
  if (object.find("full_attention") != nullptr) object = object.part("full_attention");
  const bool is_old = object.json().empty();
  if (is_old) object = config.part("rope_scaling");
  const double theta = object.number_or("rope_theta", config.number_or("rope_theta", 10000.0));
  RotarySettings rotary{.theta = theta, .all = object};
  rotary.type = object.text_or("rope_type", object.text_or("type", "default"));
  if (rotary.type == "su") rotary.type = "longrope";  // its first name
  rotary.factor = object.number_or("factor", 1.0);
  rotary.rotated_share = object.number_or("partial_rotary_factor", config.number_or("partial_rotary_factor", 1.0));
  rotary.original_context =
      object.integer_or("original_max_position_embeddings", config.integer_or("original_max_position_embeddings", 0));
  // YaRN without it means the context that the model says it has.
  if (rotary.original_context == 0 && rotary.type == "yarn")
    rotary.original_context = config.integer_or("max_position_embeddings", 0);
  return rotary;
}

Result<int64_t> head_width(const Config& config) {
  const int64_t heads = TRY(config.integer("num_attention_heads"));
  if (heads == 0) return fail(ErrorCode::corrupt, fmt::format("{} says that there are no heads.", config.subject()));
  return config.integer_or("head_dim", TRY(config.integer("hidden_size")) / heads);
}

Result<void> describe_decoder(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  const int64_t heads = TRY(config.integer("num_attention_heads"));
  const int64_t width = TRY(head_width(config));
  keys.count("context_length", TRY(config.integer("max_position_embeddings")));
  keys.count("embedding_length", TRY(config.integer("hidden_size")));
  keys.count("block_count", TRY(config.integer("num_hidden_layers")));
  if (const std::vector<int64_t> widths = config.integers("intermediate_size"); widths.size() > 1)
    keys.add("feed_forward_length", std::vector<int32_t>(widths.begin(), widths.end()));  // of each layer
  else
    keys.count("feed_forward_length", TRY(config.integer("intermediate_size")));
  keys.count("attention.head_count", heads);
  keys.count("attention.head_count_kv", config.integer_or("num_key_value_heads", heads));
  if (config.find("head_dim") != nullptr) {
    keys.count("attention.key_length", width);
    keys.count("attention.value_length", width);
  }
  const auto epsilon = config.number("rms_norm_eps");
  keys.number("attention.layer_norm_rms_epsilon", epsilon ? *epsilon : TRY(config.number("norm_eps")));
  keys.count("vocab_size", TRY(config.integer("vocab_size")));
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (const auto experts = config.integer(key); experts && *experts > 0) {
      keys.count("expert_count", *experts);
      keys.count("expert_used_count", TRY(config.integer("num_experts_per_tok")));
    }
  }
  const RotarySettings rotary = read_rotary_settings(config);
  const auto rotated = static_cast<int64_t>(rotary.rotated_share * static_cast<double>(width));
  keys.number("rope.freq_base", rotary.theta);
  keys.count("rope.dimension_count", rotated);
  return describe_scaling(rotary, rotated, keys, tensors);
}

}  // namespace nanomind
