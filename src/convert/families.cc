// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string>

#include "convert/family.h"
#include "convert/tensor_changes.h"

namespace nanomind {
namespace {

constexpr std::array kFamilies{&kBert,  &kGemma, &kGemma2, &kGemma3, &kGemma3n,  &kGranite, &kLfm2,
                               &kLlama, &kPhi3,  &kQwen2,  &kQwen3,  &kQwen3Moe, &kQwen35,  &kSmolLm3};

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
constexpr std::string_view kOtherHalves[] = {"visual.",      "vision_tower.", "vision_model.", "multi_modal_projector.",
                                             "audio_tower.", "embed_vision.", "embed_audio.",  "mtp."};

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
  constexpr std::string_view kOuter[] = {"model.", "language_model.", "bert."};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view outer : kOuter) {
      if (name.starts_with(outer)) {
        name.remove_prefix(outer.size());
        again = true;
      }
    }
  }
  return name;
}

struct Match {
  std::string layer;   // digits
  int64_t expert = 0;  // where the rule has '@'
};

// Whether `name` fits `pattern`, and what its wildcards stand for.
std::optional<Match> match(std::string_view pattern, std::string_view name) {
  Match found;
  for (const char p : pattern) {
    if (p != '#' && p != '@') {
      if (name.empty() || name.front() != p) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    const auto end = std::ranges::find_if_not(name, [](unsigned char c) { return std::isdigit(c) != 0; });
    const std::string digits(name.begin(), end);
    if (digits.empty() || digits.size() > 6) return std::nullopt;
    name.remove_prefix(digits.size());
    if (p == '#')
      found.layer = digits;
    else
      found.expert = std::stoll(digits);
  }
  if (!name.empty()) return std::nullopt;
  return found;
}

struct Found {
  const NameRule* rule = nullptr;
  Match match;
  std::string_view suffix;
};

std::optional<Found> find_rule(std::span<const NameRule> rules, std::string_view name) {
  for (const NameRule& rule : rules) {
    for (const std::string_view suffix : {".weight", ".bias", ""}) {
      if (!name.ends_with(suffix)) continue;
      if (auto fit = match(rule.source, name.substr(0, name.size() - suffix.size())))
        return Found{&rule, *std::move(fit), suffix};
    }
  }
  return std::nullopt;
}

std::string target_name(const Found& found) {
  std::string name(found.rule->target);
  if (const size_t place = name.find('#'); place != std::string::npos) name.replace(place, 1, found.match.layer);
  return name.append(found.suffix);
}

Shape shape_of(const SafetensorsTensor& source) {
  Shape shape;
  for (const int64_t size : source.shape) {
    if (shape.rank < kMaxDims) shape.dims[static_cast<size_t>(shape.rank++)] = size;
  }
  if (shape.rank == 0) shape = {1};
  return shape;
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

bool belongs_elsewhere(std::string_view name) {
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
  const bool is_tied = checkpoint.config.flag_or("tie_word_embeddings", false);
  std::map<std::string, Stack> stacks;
  for (const auto& [full_name, source] : checkpoint.weights.tensors()) {
    const std::string_view name = local_name(full_name);
    if (belongs_elsewhere(name) || (is_tied && name == "lm_head.weight")) continue;
    auto found = find_rule(family.names, name);
    if (!found && family.has_decoder_names) found = find_rule(kDecoderNames, name);
    if (!found) {
      return fail(ErrorCode::unsupported,
                  fmt::format("The tensor '{}' is not known in models of the type '{}', so a file without it might "
                              "answer wrongly. Look for a GGUF file of the model instead.",
                              full_name, checkpoint.model_type));
    }
    if (found->rule->change == Change::leave_out) continue;
    TRY(check_convertible(*source));
    const std::string target = target_name(*found);
    if (found->rule->source.find('@') != std::string_view::npos) {
      stacks[target].rule = found->rule;
      stacks[target].experts[found->match.expert] = source;
      continue;
    }
    if (source->shape.size() > kMaxDims)
      return fail(ErrorCode::corrupt, fmt::format("The tensor '{}' has too many dimensions.", full_name));
    OutputTensor tensor{.name = target, .shape = shape_of(*source), .sources = {all_rows(*source)}};
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
