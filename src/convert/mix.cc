// SPDX-License-Identifier: Apache-2.0
#include "convert/mix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <regex>

#include "convert/convert.h"

namespace nanomind {
namespace {

struct NamedMix {
  std::string_view name;
  Mix mix;
  uint32_t file_type;  // of the GGUF specification
};
constexpr NamedMix kMixes[] = {
    {"q2_k", {DType::q2_k, MixSize::medium}, 10},       {"q2_k_s", {DType::q2_k, MixSize::small}, 21},
    {"iq4_nl", {DType::iq4_nl, MixSize::medium}, 25},   {"iq4_xs", {DType::iq4_xs, MixSize::medium}, 30},
    {"mxfp4_moe", {DType::mxfp4, MixSize::medium}, 38}, {"q3_k_s", {DType::q3_k, MixSize::small}, 11},
    {"q3_k_m", {DType::q3_k, MixSize::medium}, 12},     {"q3_k_l", {DType::q3_k, MixSize::large}, 13},
    {"q4_k_s", {DType::q4_k, MixSize::small}, 14},      {"q4_k_m", {DType::q4_k, MixSize::medium}, 15},
    {"q5_k_s", {DType::q5_k, MixSize::small}, 16},      {"q5_k_m", {DType::q5_k, MixSize::medium}, 17},
};

constexpr size_t kLongestName = 512;  // that expressions are asked about

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

double bits(DType dtype) { return 8.0 * traits(dtype).block_bytes / traits(dtype).block_columns; }

DType at_least(DType a, DType b) { return bits(a) >= bits(b) ? a : b; }

// --- what stays as it is ---

bool stays(const GgufTensor& tensor) {
  constexpr std::string_view kWhole[] = {"token_types.weight", "cls.weight", "cls.output.weight",
                                         "mm.input_projection.weight"};  // which is stored turned around
  constexpr std::string_view kParts[] = {"norm",   "ffn_gate_inp",        "ssm_conv1d", "shortconv.conv",
                                         "rope_f", "position_embd",       "patch_embd", "altup",
                                         "laurel", "per_layer_model_proj"};
  if (tensor.shape.rank < 2 || !tensor.name.ends_with(".weight")) return true;
  if (std::ranges::find(kWhole, tensor.name) != std::end(kWhole)) return true;
  return std::ranges::any_of(kParts, [&](std::string_view part) { return tensor.name.contains(part); });
}

// --- mixes ---

// What mixes ask about a model.
struct Facts {
  int64_t layers = 1, experts = 0;
  int64_t sharing = 1;  // query heads of a key head
};

bool is_iq4(DType dtype) { return dtype == DType::iq4_nl || dtype == DType::iq4_xs; }

// Layers whose tensors matter more: the first and the last eighth, and every third between.
bool is_important(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

int64_t layer_of(std::string_view name) {
  int64_t layer = 0;
  if (name.starts_with("v.")) name.remove_prefix(2);  // of vision files
  if (!name.starts_with("blk.")) return 0;
  for (const char c : name.substr(4)) {
    if (c < '0' || c > '9') break;
    layer = layer * 10 + (c - '0');
  }
  return layer;
}

DType mixed_value(const Mix& mix, int64_t layer, const Facts& facts) {
  const bool is_shared = facts.sharing >= 4;  // small, and many heads depend on it
  if (mix.base == DType::q2_k) return is_shared ? DType::q4_k : mix.size == MixSize::medium ? DType::q3_k : mix.base;
  if (is_iq4(mix.base)) return is_shared ? DType::q5_k : mix.base;
  if (mix.base == DType::q3_k) {
    if (mix.size == MixSize::large) return DType::q5_k;
    if (mix.size == MixSize::medium) return layer < 2 ? DType::q5_k : DType::q4_k;
    return mix.base;
  }
  if (mix.size == MixSize::medium && is_important(layer, facts.layers)) return DType::q6_k;
  if (mix.base == DType::q4_k && mix.size == MixSize::small && layer < 4) return DType::q5_k;
  return mix.base;
}

DType for_value(const Mix& mix, int64_t layer, const Facts& facts) {
  const DType dtype = mixed_value(mix, layer, facts);
  const bool is_large = facts.layers == 80 && facts.sharing > 1;
  return is_large && (dtype == DType::q3_k || dtype == DType::q4_k) ? DType::q5_k : dtype;
}

DType for_down(const Mix& mix, int64_t layer, int64_t layers) {
  const bool is_first = layer < layers / 8;
  if (mix.base == DType::q2_k) {
    if (mix.size == MixSize::medium) return DType::q3_k;
    return is_first ? DType::q4_k : mix.base;
  }
  if (is_iq4(mix.base)) return is_first ? DType::q5_k : mix.base;
  if (mix.base == DType::q3_k) {
    if (mix.size == MixSize::large) return DType::q5_k;
    if (mix.size == MixSize::medium) return layer < layers / 16 ? DType::q5_k : DType::q4_k;
    return mix.base;
  }
  if (mix.size == MixSize::medium && is_important(layer, layers)) return DType::q6_k;
  if (mix.base == DType::q4_k && mix.size == MixSize::small && is_first) return DType::q5_k;
  return mix.base;
}

DType for_output(const Mix& mix, const Facts& facts) {
  if (facts.experts == 8 && mix.base != DType::q5_k && mix.size != MixSize::large) return DType::q5_k;
  if (mix.base == DType::q2_k && mix.size == MixSize::medium) return DType::q3_k;
  if (mix.base != DType::q3_k) return mix.base;
  return mix.size == MixSize::large ? DType::q5_k : mix.size == MixSize::medium ? DType::q4_k : mix.base;
}

DType from_mix(const Mix& mix, const GgufTensor& tensor, const Facts& facts) {
  const std::string_view name = tensor.name;
  const bool is_value = name.contains(".attn_v.") || name.contains(".attn_qkv.");  // joined: by its weightiest part
  if (facts.experts == 8 && mix.base != DType::mxfp4 && (is_value || name.contains(".attn_k.")))
    return at_least(mix.base, DType::q8_0);  // which is next to nothing beside the experts
  if (mix.size == MixSize::plain) return mix.base;
  if (mix.base == DType::mxfp4) return tensor.shape.rank > 2 ? mix.base : DType::q8_0;
  const int64_t layer = layer_of(name);
  if (is_value) return for_value(mix, layer, facts);
  if (name.contains(".ffn_down")) return for_down(mix, layer, facts.layers);
  if (name.contains(".attn_output.")) return for_output(mix, facts);
  return mix.base;
}

// The same or more bits in blocks that rows of so many columns divide into.
DType fit_columns(DType dtype, int64_t columns) {
  const auto fits = [&](DType type) { return columns % traits(type).block_columns == 0; };
  if (!fits(dtype)) {
    switch (dtype) {
      case DType::q2_k:
      case DType::q3_k: dtype = DType::q4_0; break;
      case DType::q4_k: dtype = DType::q5_0; break;
      case DType::q5_k: dtype = DType::q5_1; break;
      case DType::q6_k: dtype = DType::q8_0; break;
      case DType::iq4_xs: dtype = DType::iq4_nl; break;
      default: break;
    }
  }
  return fits(dtype) ? dtype : DType::f16;
}

Facts facts_of(const GgufFile& file, std::string_view architecture) {
  const auto count = [&](std::string_view key, uint64_t otherwise) {
    return static_cast<int64_t>(file.get_uint(fmt::format("{}.{}", architecture, key)).value_or(otherwise));
  };
  if (architecture == "clip") return {.layers = count("vision.block_count", 1)};
  const int64_t heads = count("attention.head_count", 1), key_heads = count("attention.head_count_kv", 0);
  return {.layers = count("block_count", 1),
          .experts = count("expert_count", 0),
          .sharing = key_heads > 0 ? heads / key_heads : 1};
}

// --- rules ---

class Patterns {
 public:
  // The standard library's expressions throw; nothing of that leaves this class.
  static Result<Patterns> compile(const std::vector<TypeRule>& rules) {
    Patterns out;
    for (const TypeRule& rule : rules) {
      try {
        out.patterns_.emplace_back(rule.pattern, std::regex::ECMAScript | std::regex::optimize);
      } catch (const std::regex_error& error) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("'{}' is no regular expression ({}).", rule.pattern, error.what()));
      }
    }
    return out;
  }
  // Index of the first rule that matches.
  Result<std::optional<size_t>> find(std::string_view name) const {
    if (name.size() > kLongestName) return std::nullopt;
    try {
      for (size_t i = 0; i < patterns_.size(); ++i) {
        if (std::regex_search(name.begin(), name.end(), patterns_[i])) return i;
      }
    } catch (const std::regex_error& error) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("A rule is too hard to decide for the tensor {} ({}).", name, error.what()));
    }
    return std::nullopt;
  }

 private:
  std::vector<std::regex> patterns_;
};

// What of a choice some tensor has met.
struct Met {
  std::vector<bool> rules;
  bool head = false, embedding = false;
};

// A wish that no tensor meets is a mistake, a mistyped name mostly; all are named together.
Result<void> check_met(const GgufFile& file, const TypeChoice& choice, const Met& met) {
  std::string wrong;
  for (size_t i = 0; i < met.rules.size(); ++i) {
    if (met.rules[i]) continue;
    wrong += fmt::format(
        "The rule '{}' decides nothing: no name matches it, or only those of tensors that stay as they are or that an "
        "earlier rule decides. ",
        choice.rules[i].pattern);
  }
  if (choice.head && !met.head) wrong += "There is no matrix that makes logits, so leave out a type for it. ";
  if (choice.embedding && !met.embedding) wrong += "There is no table of tokens, so leave out a type for it. ";
  if (wrong.empty()) return {};
  std::vector<std::string_view> examples;
  for (const GgufTensor& tensor : file.tensors()) {
    if (!stays(tensor) && examples.size() < 5) examples.push_back(tensor.name);
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("{}Matrices of {} have names like {}.", wrong, file.subject(), fmt::join(examples, ", ")));
}

}  // namespace

Result<Mix> parse_mix(std::string_view text) {
  const std::string wanted = lower(text);
  std::vector<std::string> known;
  for (const NamedMix& named : kMixes) {
    known.emplace_back(named.name);
    if (named.name == wanted) return named.mix;
  }
  for (const DType dtype : kDTypes) {
    known.push_back(lower(traits(dtype).name));
    if (known.back() == wanted) return Mix{dtype, MixSize::plain};
  }
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  return fail(ErrorCode::invalid_argument,
              fmt::format("There is no type '{}' to write; known are {}.", text, fmt::join(known, ", ")));
}

uint32_t file_type_of(const Mix& mix) {
  for (const NamedMix& named : kMixes) {
    if (named.mix.base == mix.base && named.mix.size == mix.size) return named.file_type;
  }
  return gguf_file_type(mix.base);
}

Result<std::vector<std::optional<DType>>> choose_types(const GgufFile& file, const TypeChoice& choice) {
  const Patterns patterns = TRY(Patterns::compile(choice.rules));
  const bool is_tied = file.tensor("output.weight") == nullptr;
  const std::string_view architecture = file.get_string("general.architecture").value_or("");
  const bool is_encoder = !file.get_bool(fmt::format("{}.attention.causal", architecture)).value_or(true);
  const bool is_pure = choice.head_default == HeadDefault::as_others;
  const Facts facts = facts_of(file, architecture);
  const DType least_head =
      choice.mix.base == DType::mxfp4 && choice.mix.size != MixSize::plain ? DType::q8_0 : DType::q6_k;
  Met met{.rules = std::vector<bool>(choice.rules.size())};
  std::vector<std::optional<DType>> types;
  for (const GgufTensor& tensor : file.tensors()) {
    auto& type = types.emplace_back();
    if (stays(tensor)) continue;
    const bool is_table = tensor.name == "token_embd.weight";
    const bool is_head = tensor.name == "output.weight" || (is_table && is_tied && !is_encoder);
    // Files without a head of their own have finer tables, be they heads or not.
    const bool is_fine = is_head || (is_tied && (is_table || tensor.name == "per_layer_token_embd.weight"));
    DType dtype = is_pure ? choice.mix.base : from_mix(choice.mix, tensor, facts);
    if (is_fine && !is_pure) dtype = at_least(dtype, least_head);
    if (is_table && choice.embedding) dtype = *choice.embedding;
    if (is_head && choice.head) dtype = *choice.head;
    if (const auto rule = TRY(patterns.find(tensor.name))) {
      dtype = choice.rules[*rule].dtype;
      met.rules[*rule] = true;
    }
    met.head |= is_head;
    met.embedding |= is_table;
    type = fit_columns(dtype, tensor.shape.columns());
  }
  TRY(check_met(file, choice, met));
  return types;
}

}  // namespace nanomind
