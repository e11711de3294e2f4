// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "convert/family.h"
#include "convert/tensor_changes.h"

namespace nanomind {
namespace {

constexpr std::array kFamilies{&kBert,     &kGemma,  &kGemma2,    &kGemma3,    &kGemma3n, &kGranite,
                               &kLfm2,     &kLlama,  &kNomicBert, &kPhi3,      &kQwen2,   &kQwen3,
                               &kQwen3Moe, &kQwen35, &kSmolLm3,   &kXlmRoberta};

// What most decoders call alike.
constexpr NameRule kDecoderNames[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {"layers.#.mlp.experts.@.gate_proj", "blk.#.ffn_gate_exps"},
    {"layers.#.mlp.experts.@.up_proj", "blk.#.ffn_up_exps"},
    {"layers.#.mlp.experts.@.down_proj", "blk.#.ffn_down_exps"},
    // Tables that programs compute, and the other halves of models that see.
    {"layers.#.self_attn.rotary_emb.inv_freq", "", Change::leave_out},
    {"rotary_emb.inv_freq", "", Change::leave_out},
};
// The same of BERT and XLM-RoBERTa.
constexpr NameRule kEncoderNames[] = {
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

constexpr std::string_view kOtherHalves[] = {"audio_tower.", "embed_audio.", "mtp."};

// Matrices that are read as floats, whatever the others are: small, and programs ask for it.
constexpr std::string_view kExactMatrices[] = {"position_embd.weight", "token_types.weight"};
constexpr std::string_view kExactEndings[] = {".ffn_gate_inp.weight",       ".ssm_conv1d.weight",
                                              ".shortconv.conv.weight",     ".altup_router.weight",
                                              ".altup_predict_coef.weight", ".altup_correct_coef.weight"};

bool is_exact(const OutputTensor& tensor) {
  return tensor.is_vector() || std::ranges::find(kExactMatrices, tensor.name) != std::end(kExactMatrices) ||
         std::ranges::any_of(kExactEndings, [&](std::string_view end) { return tensor.name.ends_with(end); });
}

// A tensor's name without the models that it is nested in.
std::string_view local_name(std::string_view name) {
  constexpr std::string_view kOuter[] = {"model.", "language_model.", "text_model.", "bert.", "roberta."};
  return without_prefixes(name, kOuter);
}

// Experts in the order of their numbers, as one tensor.
struct Stack {
  const NameRule* rule = nullptr;
  std::map<int64_t, const SafetensorsTensor*> experts;
};

Result<OutputTensor> stack_experts(const std::string& name, const Stack& stack) {
  const SafetensorsTensor& first = *stack.experts.begin()->second;
  const auto count = static_cast<int64_t>(stack.experts.size());
  OutputTensor tensor{.name = name, .shape = {count, first.rows(), first.columns()}};
  int64_t next = 0;
  for (const auto& [number, source] : stack.experts) {
    if (number != next++ || source->shape != first.shape) {
      return fail(ErrorCode::corrupt,
                  fmt::format("The experts of {} are not {} tensors of one shape, numbered from 0.", name, count));
    }
    tensor.sources.push_back(all_rows(*source));
  }
  return tensor;
}

std::span<const NameRule> shared_names(const Family& family) {
  switch (family.shared) {
    case SharedNames::decoders: return kDecoderNames;
    case SharedNames::encoders: return kEncoderNames;
    case SharedNames::none: return {};
  }
  CHECK(false && "names that are not there");
}

bool belongs_elsewhere(std::string_view full_name) {
  if (is_of_vision(full_name)) return true;
  const std::string_view name = local_name(full_name);
  return std::ranges::any_of(kOtherHalves, [&](std::string_view start) { return name.starts_with(start); });
}

}  // namespace

Result<const Family*> find_family(std::string_view model_type) {
  std::vector<std::string_view> known;
  for (const Family* family : kFamilies) {
    if (std::ranges::find(family->model_types, model_type) != family->model_types.end()) return family;
    known.insert(known.end(), family->model_types.begin(), family->model_types.end());
  }
  std::ranges::sort(known);
  return fail(ErrorCode::unsupported,
              fmt::format("Models of the type '{}' are not converted; known types: {}. Look for "
                          "a GGUF file of the model instead.",
                          model_type, fmt::join(known, ", ")));
}

Result<std::vector<OutputTensor>> map_tensors(const Checkpoint& checkpoint, const Family& family,
                                              std::vector<OutputTensor> tensors) {
  // Models that rank keep the rows of their head that they need.
  const bool needs_head = !checkpoint.config.flag_or("tie_word_embeddings", false) &&
                          std::ranges::find(tensors, "cls.output.weight", &OutputTensor::name) == tensors.end();
  std::map<std::string, Stack> stacks;
  for (const auto& [full_name, source] : checkpoint.weights.tensors()) {
    const std::string_view name = local_name(full_name);
    if (belongs_elsewhere(full_name) || (!needs_head && name == "lm_head.weight")) continue;
    auto found = find_rule(family.names, name);
    if (!found) found = find_rule(shared_names(family), name);
    if (!found) return unknown_tensor(full_name, checkpoint.model_type);
    if (found->rule->change == Change::leave_out) continue;
    if (found->rule->source.find('@') != std::string_view::npos) {
      TRY(check_convertible(*source));
      Stack& stack = stacks[found->target()];
      stack.rule = found->rule;
      stack.experts[found->expert] = source;
      continue;
    }
    OutputTensor tensor = TRY(whole_tensor(found->target(), *source));
    TRY(apply_change(found->rule->change, checkpoint.config, tensor));
    tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, stack] : stacks) tensors.push_back(TRY(stack_experts(name, stack)));
  for (OutputTensor& tensor : tensors) {
    if (is_exact(tensor)) tensor.precision = Precision::exact;
  }
  return tensors;
}

}  // namespace nanomind
