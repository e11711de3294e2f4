// SPDX-License-Identifier: Apache-2.0
// Phi-3, Phi-3.5 and Phi-4 (GGUF arch "phi3"): q, k and v in one matrix, gate and up in another, LongRoPE as two
// tables.
#include <fmt/format.h>

#include <cmath>

#include "convert/decoder_keys.h"
#include "convert/family.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"phi3"};
constexpr NameRule kNames[] = {
    {"layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
    {"layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
};

Result<void> add_table(const RotarySettings& rotary, const char* key, std::string_view name, size_t pairs,
                       std::vector<OutputTensor>& tensors) {
  const std::vector<double> factors = rotary.all.numbers(key);
  if (factors.size() != pairs) {
    return fail(ErrorCode::corrupt,
                fmt::format("{}: {} has {} numbers instead of {}.", rotary.all.subject(), key, factors.size(), pairs));
  }
  tensors.push_back({.name = std::string(name),
                     .shape = {static_cast<int64_t>(pairs)},
                     .constant = std::vector<float>(factors.begin(), factors.end())});
  return {};
}

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  TRY(describe_decoder(checkpoint, keys, tensors));
  const RotarySettings rotary = read_rotary_settings(config);
  const int64_t context = TRY(config.integer("max_position_embeddings"));
  const int64_t original = rotary.original_context != 0 ? rotary.original_context : context;
  keys.count("attention.sliding_window", config.integer_or("sliding_window", 0));
  keys.count("rope.scaling.original_context_length", original);
  if (rotary.type != "longrope") return {};
  const double ratio = static_cast<double>(context) / static_cast<double>(original);
  const double usual = ratio > 1.0 ? std::sqrt(1.0 + std::log(ratio) / std::log(static_cast<double>(original))) : 1.0;
  keys.number("rope.scaling.attn_factor", rotary.all.number_or("attention_factor", usual));
  const auto pairs = static_cast<size_t>(rotary.rotated_share * static_cast<double>(TRY(head_width(config)))) / 2;
  TRY(add_table(rotary, "long_factor", "rope_factors_long.weight", pairs, tensors));
  return add_table(rotary, "short_factor", "rope_factors_short.weight", pairs, tensors);
}

}  // namespace

const Family kPhi3{.architecture = "phi3", .model_types = kTypes, .names = kNames, .describe = describe};

}  // namespace nanomind
