// SPDX-License-Identifier: Apache-2.0
// Qwen2, Qwen2.5 and Qwen3, dense and mixtures (GGUF archs "qwen2", "qwen3", "qwen3moe").
#include <fmt/format.h>

#include "convert/decoder_keys.h"
#include "convert/family.h"
#include "convert/pooling.h"
#include "convert/ranker.h"

namespace nanomind {
namespace {

constexpr std::string_view kQwen2Types[] = {"qwen2"};
constexpr std::string_view kQwen3Types[] = {"qwen3"};
constexpr std::string_view kQwen3MoeTypes[] = {"qwen3_moe"};
constexpr NameRule kQwen3Names[] = {{"score", "", Change::leave_out}};  // becomes the classifier
constexpr const char* kQwen2Settings = R"({"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "vocab_size": 151936})";

Result<void> check_window(const Config& config) {
  if (!config.flag_or("use_sliding_window", false)) return {};
  return fail(ErrorCode::unsupported, fmt::format("{} asks for a sliding window, which GGUF files of this architecture "
                                                  "cannot say.",
                                                  config.subject()));
}

Result<void> describe_writer(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  TRY(check_window(checkpoint.config));
  return describe_decoder(checkpoint, keys, tensors);
}

Result<void> describe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  TRY(describe_writer(checkpoint, keys, tensors));
  return describe_pooling(checkpoint, keys);
}

Result<void> describe_qwen3(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  TRY(describe_writer(checkpoint, keys, tensors));
  return TRY(is_ranker(checkpoint)) ? describe_ranker(checkpoint, keys, tensors) : describe_pooling(checkpoint, keys);
}

Result<void> describe_moe(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  if (!config.flag_or("norm_topk_prob", true) || config.integer_or("decoder_sparse_step", 1) != 1 ||
      !config.integers("mlp_only_layers").empty()) {
    return fail(ErrorCode::unsupported, fmt::format("{} asks for a mixture that GGUF files of this architecture cannot "
                                                    "say.",
                                                    config.subject()));
  }
  TRY(describe(checkpoint, keys, tensors));
  keys.count("expert_feed_forward_length", TRY(config.integer("moe_intermediate_size")));
  return {};
}

}  // namespace

const Family kQwen2{.architecture = "qwen2",
                    .model_types = kQwen2Types,
                    .names = {},
                    .describe = describe,
                    .class_settings = kQwen2Settings};
const Family kQwen3{
    .architecture = "qwen3", .model_types = kQwen3Types, .names = kQwen3Names, .describe = describe_qwen3};
const Family kQwen3Moe{
    .architecture = "qwen3moe", .model_types = kQwen3MoeTypes, .names = {}, .describe = describe_moe};

}  // namespace nanomind
