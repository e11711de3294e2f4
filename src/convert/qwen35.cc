// SPDX-License-Identifier: Apache-2.0
// Qwen3.5 and the text half of models that see with it (GGUF arch "qwen35"): gated delta rules and gated attention. The
// file has norms with the 1 added, decays as -exp(A_log), and value heads in the order in which key heads repeat.
#include <fmt/format.h>

#include <algorithm>

#include "convert/decoder_keys.h"
#include "convert/family.h"

namespace nanomind {
namespace {

constexpr std::string_view kTypes[] = {"qwen3_5", "qwen3_5_text", "minicpmv4_6"};
constexpr NameRule kNames[] = {
    {"norm", "output_norm", Change::plus_one},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::plus_one},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm", Change::plus_one},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm", Change::plus_one},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm", Change::plus_one},
    {"layers.#.linear_attn.in_proj_qkv", "blk.#.attn_qkv", Change::mixed_heads},
    {"layers.#.linear_attn.conv1d", "blk.#.ssm_conv1d", Change::mixed_heads},
    {"layers.#.linear_attn.in_proj_z", "blk.#.attn_gate", Change::value_heads},
    {"layers.#.linear_attn.in_proj_a", "blk.#.ssm_alpha", Change::value_heads},
    {"layers.#.linear_attn.in_proj_b", "blk.#.ssm_beta", Change::value_heads},
    {"layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias", Change::value_heads},
    {"layers.#.linear_attn.A_log", "blk.#.ssm_a", Change::decay},
    {"layers.#.linear_attn.norm", "blk.#.ssm_norm"},
    {"layers.#.linear_attn.out_proj", "blk.#.ssm_out", Change::value_columns},
};

// The interval at which layers of attention come, which is all that a file can say.
Result<int64_t> attention_interval(const Config& config) {
  const std::vector<std::string> layers = config.texts("layer_types");
  const auto first = std::ranges::find(layers, "full_attention");
  const int64_t interval =
      config.integer_or("full_attention_interval", first == layers.end() ? 4 : first - layers.begin() + 1);
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_full = (static_cast<int64_t>(i) + 1) % std::max<int64_t>(interval, 1) == 0;
    if (layers[i] != (is_full ? "full_attention" : "linear_attention")) {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: layers of attention do not come at an interval.", config.subject()));
    }
  }
  return interval;
}

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  TRY(describe_decoder(checkpoint, keys, tensors));
  const RotarySettings rotary = read_rotary_settings(config);
  const int64_t width = TRY(head_width(config));
  // The publisher's default, where the settings say nothing.
  const double share =
      rotary.all.find("partial_rotary_factor") || config.find("partial_rotary_factor") ? rotary.rotated_share : 0.25;
  keys.count("rope.dimension_count", static_cast<int64_t>(share * static_cast<double>(width)));
  std::vector<int32_t> sections;
  for (const int64_t section : rotary.all.integers("mrope_section")) sections.push_back(static_cast<int32_t>(section));
  if (sections.size() != 3)
    return fail(ErrorCode::corrupt, fmt::format("{} has no mrope_section of three numbers.", rotary.all.subject()));
  sections.push_back(0);
  keys.add("rope.dimension_sections", sections);
  const int64_t values = TRY(config.integer("linear_num_value_heads"));
  keys.count("ssm.conv_kernel", TRY(config.integer("linear_conv_kernel_dim")));
  keys.count("ssm.state_size", TRY(config.integer("linear_key_head_dim")));
  keys.count("ssm.group_count", TRY(config.integer("linear_num_key_heads")));
  keys.count("ssm.time_step_rank", values);
  keys.count("ssm.inner_size", values * TRY(config.integer("linear_value_head_dim")));
  keys.count("full_attention_interval", TRY(attention_interval(config)));
  return {};
}

}  // namespace

const Family kQwen35{.architecture = "qwen35", .model_types = kTypes, .names = kNames, .describe = describe};

}  // namespace nanomind
