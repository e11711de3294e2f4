// SPDX-License-Identifier: Apache-2.0
// The text half of Gemma 3n (GGUF arch "gemma3n").
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "convert/decoder_keys.h"
#include "convert/family.h"

namespace nanomind {
namespace {

constexpr NameRule kNames[] = {
    {"embed_tokens_per_layer", "", Change::leave_out},  // described below
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
    {"altup_projections.@", "altup_proj"},
    {"altup_unembed_projections.@", "altup_unembd_proj"},
    {"layers.#.altup.correct_output_scale", "blk.#.altup_correct_scale.weight"},
    {"layers.#.altup.correction_coefs", "blk.#.altup_correct_coef"},
    {"layers.#.altup.prediction_coefs", "blk.#.altup_predict_coef"},
    {"layers.#.altup.modality_router", "blk.#.altup_router"},
    {"layers.#.altup.router_norm", "blk.#.altup_router_norm"},
    {"layers.#.laurel.linear_left", "blk.#.laurel_l"},
    {"layers.#.laurel.linear_right", "blk.#.laurel_r"},
    {"layers.#.laurel.post_laurel_norm", "blk.#.laurel_post_norm"},
    {"layers.#.per_layer_input_gate", "blk.#.inp_gate"},
    {"layers.#.per_layer_projection", "blk.#.proj"},
    {"layers.#.post_per_layer_input_norm", "blk.#.post_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
};
constexpr std::string_view kTypes[] = {"gemma3n", "gemma3n_text"};

const SafetensorsTensor* find_by_end(const Checkpoint& checkpoint, std::string_view end) {
  for (const auto& [name, tensor] : checkpoint.weights.tensors()) {
    if (name.ends_with(end)) return tensor;
  }
  return nullptr;
}

// The table of the layers' embeddings. Tokens that only stand for pictures and sounds have no row of it; the model
// takes the first one for them.
Result<OutputTensor> layer_table(const Checkpoint& checkpoint) {
  const SafetensorsTensor* table = find_by_end(checkpoint, "embed_tokens_per_layer.weight");
  const SafetensorsTensor* tokens = find_by_end(checkpoint, "embed_tokens.weight");
  if (table == nullptr || tokens == nullptr || table->shape.size() != 2 || tokens->shape.size() != 2)
    return fail(ErrorCode::corrupt, "The model has no table of embeddings, or none for each layer.");
  TRY(check_convertible(*table));
  const int64_t rows = table->rows();
  return OutputTensor{.name = "per_layer_token_embd.weight",
                      .shape = {tokens->rows(), table->columns()},
                      .sources = {all_rows(*table)},
                      .row = [rows](int64_t i) { return i < rows ? i : 0; }};
}

// By how many standard deviations a normally distributed value exceeds `share` of all: the root of
// erfc(-x / sqrt 2) = 2 share, by Newton's method.
double deviations_above(double share) {
  if (share <= 0) return -std::numeric_limits<double>::infinity();
  double x = 0;
  for (int i = 0; i < 100; ++i) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double step = (std::erfc(-x / std::numbers::sqrt2) / 2 - share) / density;
    x -= std::clamp(step, -1.0, 1.0);
    if (std::abs(step) < 1e-14) break;
  }
  return x;
}

Result<void> describe_sparsity(const Config& config, size_t layers, FamilyKeys& keys) {
  std::vector<double> pattern = config.numbers("activation_sparsity_pattern");
  if (const auto all = config.number("activation_sparsity_pattern")) pattern.assign(layers, *all);
  if (pattern.empty()) return {};  // files mean the usual one then
  std::vector<float> scales;
  for (const double share : pattern) {
    if (!(share < 1) || pattern.size() != layers)
      return fail(
          ErrorCode::corrupt,
          fmt::format("{}: activation_sparsity_pattern is not a share below 1 for each layer.", config.subject()));
    scales.push_back(static_cast<float>(deviations_above(share)));
  }
  keys.add("activation_sparsity_scale", scales);
  return {};
}

Result<void> describe_gemma3n(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  const int64_t layers = TRY(config.integer("num_hidden_layers"));
  TRY(describe_decoder(checkpoint, keys, tensors));
  keys.count("attention.sliding_window", TRY(config.integer("sliding_window")));
  std::vector<bool> is_local;
  for (const std::string& kind : config.texts("layer_types")) is_local.push_back(kind == "sliding_attention");
  if (!is_local.empty()) keys.add("attention.sliding_window_pattern", is_local);
  keys.count("attention.shared_kv_layers", TRY(config.integer("num_kv_shared_layers")));
  keys.count("altup.num_inputs", TRY(config.integer("altup_num_inputs")));
  keys.count("altup.active_idx", config.integer_or("altup_active_idx", 0));
  keys.count("embedding_length_per_layer_input", TRY(config.integer("hidden_size_per_layer_input")));
  if (!config.flag_or("altup_correct_scale", true)) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} turns altup_correct_scale off, which GGUF files cannot say.", config.subject()));
  }
  const Config nearby = config.part("rope_parameters").part("sliding_attention");
  keys.number("rope.freq_base_swa", nearby.number_or("rope_theta", config.number_or("rope_local_base_freq", 10000.0)));
  if (const auto cap = config.number("final_logit_softcapping")) keys.number("final_logit_softcapping", *cap);
  TRY(describe_sparsity(config, static_cast<size_t>(layers), keys));
  tensors.push_back(TRY(layer_table(checkpoint)));
  return {};
}

}  // namespace

const Family kGemma3n{.architecture = "gemma3n", .model_types = kTypes, .names = kNames, .describe = describe_gemma3n};

}  // namespace nanomind
