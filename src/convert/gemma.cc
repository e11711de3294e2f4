// SPDX-License-Identifier: Apache-2.0
// Gemma, Gemma 2 and the text half of Gemma 3 (GGUF archs "gemma", "gemma2", "gemma3"): the file has norms with the 1
// added.
#include <fmt/format.h>

#include "convert/decoder_keys.h"
#include "convert/family.h"

namespace nanomind {
namespace {

constexpr NameRule kFirstNames[] = {
    {"norm", "output_norm", Change::plus_one},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::plus_one},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm", Change::plus_one},
};
constexpr NameRule kNames[] = {
    {"norm", "output_norm", Change::plus_one},
    {"layers.#.input_layernorm", "blk.#.attn_norm", Change::plus_one},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm", Change::plus_one},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm", Change::plus_one},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm", Change::plus_one},
    {"layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm", Change::plus_one},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm", Change::plus_one},
};
constexpr std::string_view kGemmaTypes[] = {"gemma"};
constexpr std::string_view kGemma2Types[] = {"gemma2"};
constexpr std::string_view kGemma3Types[] = {"gemma3", "gemma3_text"};
constexpr const char* kGemma3Settings = R"({"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 4096, "vocab_size": 262208,
    "tie_word_embeddings": true})";

// Layer i of those with a window is not `every` times a number.
Result<void> check_pattern(const Config& config, size_t every) {
  const std::vector<std::string> layers = config.texts("layer_types");
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] != ((i + 1) % every == 0 ? "full_attention" : "sliding_attention")) {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: layers with a window come in another order than GGUF files of this architecture "
                              "mean.",
                              config.subject()));
    }
  }
  return {};
}

void describe_caps(const Config& config, FamilyKeys& keys) {
  if (const auto cap = config.number("attn_logit_softcapping")) keys.number("attn_logit_softcapping", *cap);
  if (const auto cap = config.number("final_logit_softcapping")) keys.number("final_logit_softcapping", *cap);
}

Result<void> describe_gemma2(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  TRY(check_pattern(checkpoint.config, 2));
  TRY(describe_decoder(checkpoint, keys, tensors));
  keys.count("attention.sliding_window", TRY(checkpoint.config.integer("sliding_window")));
  describe_caps(checkpoint.config, keys);
  return {};
}

Result<void> describe_gemma3(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors) {
  const Config& config = checkpoint.config;
  TRY(check_pattern(config, 6));
  TRY(describe_decoder(checkpoint, keys, tensors));
  keys.count("attention.sliding_window", TRY(config.integer("sliding_window")));
  const Config nearby = config.part("rope_parameters").part("sliding_attention");
  keys.number("rope.freq_base_swa", nearby.number_or("rope_theta", config.number_or("rope_local_base_freq", 10000.0)));
  describe_caps(config, keys);
  return {};
}

}  // namespace

const Family kGemma{
    .architecture = "gemma", .model_types = kGemmaTypes, .names = kFirstNames, .describe = describe_decoder};
const Family kGemma2{
    .architecture = "gemma2", .model_types = kGemma2Types, .names = kNames, .describe = describe_gemma2};
const Family kGemma3{.architecture = "gemma3",
                     .model_types = kGemma3Types,
                     .names = kNames,
                     .describe = describe_gemma3,
                     .class_settings = kGemma3Settings};

}  // namespace nanomind
