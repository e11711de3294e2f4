// SPDX-License-Identifier: Apache-2.0
#include "convert/mix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <regex>

#include "convert/convert.h"
#include "convert/quantize_row.h"

namespace nanomind {
namespace {

struct NamedMix {
  std::string_view name;
  Mix mix;
  uint32_t file_type;  // of the GGUF specification
};
constexpr NamedMix kMixes[] = {
    {"q3_k_s", {DType::q3_k, MixSize::small}, 11},  {"q3_k_m", {DType::q3_k, MixSize::medium}, 12},
    {"q3_k_l", {DType::q3_k, MixSize::large}, 13},  {"q4_k_s", {DType::q4_k, MixSize::small}, 14},
    {"q4_k_m", {DType::q4_k, MixSize::medium}, 15}, {"q5_k_s", {DType::q5_k, MixSize::small}, 16},
    {"q5_k_m", {DType::q5_k, MixSize::medium}, 17},
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
  constexpr std::string_view kWhole[] = {"position_embd.weight", "token_types.weight", "cls.weight",
                                         "cls.output.weight"};
  constexpr std::string_view kParts[] = {"norm", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv", "rope_f"};
  if (tensor.shape.rank < 2 || !tensor.name.ends_with(".weight")) return true;
  if (std::ranges::find(kWhole, tensor.name) != std::end(kWhole)) return true;
  return std::ranges::any_of(kParts, [&](std::string_view part) { return tensor.name.contains(part); });
}

// --- mixes ---

// Layers whose tensors matter more: the first and the last eighth, and every third between.
bool is_important(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

int64_t layer_of(std::string_view name) {
  int64_t layer = 0;
  if (!name.starts_with("blk.")) return 0;
  for (const char c : name.substr(4)) {
    if (c < '0' || c > '9') break;
    layer = layer * 10 + (c - '0');
  }
  return layer;
}

DType for_value(const Mix& mix, int64_t layer, int64_t layers) {
  const bool important = is_important(layer, layers);
  if (mix.base == DType::q3_k) {
    if (mix.size == MixSize::large) return DType::q5_k;
    if (mix.size == MixSize::medium) return layer < 2 ? DType::q5_k : DType::q4_k;
    return mix.base;
  }
  if (mix.size == MixSize::medium && important) return DType::q6_k;
  if (mix.base == DType::q4_k && mix.size == MixSize::small && layer < 4) return DType::q5_k;
  return mix.base;
}

DType for_down(const Mix& mix, int64_t layer, int64_t layers) {
  if (mix.base == DType::q3_k) {
    if (mix.size == MixSize::large) return DType::q5_k;
    if (mix.size == MixSize::medium) return layer < layers / 16 ? DType::q5_k : DType::q4_k;
    return mix.base;
  }
  if (mix.size == MixSize::medium && is_important(layer, layers)) return DType::q6_k;
  if (mix.base == DType::q4_k && mix.size == MixSize::small && layer < layers / 8) return DType::q5_k;
  return mix.base;
}

DType for_joined(const Mix& mix) {
  if (mix.base == DType::q3_k && mix.size != MixSize::small) return DType::q4_k;
  if (mix.size != MixSize::medium) return mix.base;
  return mix.base == DType::q4_k ? DType::q5_k : DType::q6_k;
}

DType for_output(const Mix& mix) {
  if (mix.base != DType::q3_k) return mix.base;
  return mix.size == MixSize::large ? DType::q5_k : mix.size == MixSize::medium ? DType::q4_k : mix.base;
}

DType from_mix(const Mix& mix, std::string_view name, int64_t layers) {
  if (mix.size == MixSize::plain) return mix.base;
  const int64_t layer = layer_of(name);
  if (name.contains(".attn_v.")) return for_value(mix, layer, layers);
  if (name.contains(".ffn_down")) return for_down(mix, layer, layers);
  if (name.contains(".attn_qkv.")) return for_joined(mix);
  if (name.contains(".attn_output.")) return for_output(mix);
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
      default: break;
    }
  }
  return fits(dtype) ? dtype : DType::f16;
}

// --- rules ---

class Patterns {
 public:
  // The standard library's expressions throw; nothing of that leaves this class.
  static Result<Patterns> compile(const std::vector<TypeRule>& rules) {
    Patterns out;
    for (const TypeRule& rule : rules) {
      try {
        out.rules_.emplace_back(std::regex(rule.pattern, std::regex::ECMAScript | std::regex::optimize), rule.dtype);
      } catch (const std::regex_error& error) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("'{}' is no regular expression ({}).", rule.pattern, error.what()));
      }
    }
    return out;
  }
  Result<std::optional<DType>> find(std::string_view name) const {
    if (name.size() > kLongestName) return std::nullopt;
    try {
      for (const auto& [pattern, dtype] : rules_) {
        if (std::regex_search(name.begin(), name.end(), pattern)) return dtype;
      }
    } catch (const std::regex_error& error) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("A rule is too hard to decide for the tensor {} ({}).", name, error.what()));
    }
    return std::nullopt;
  }

 private:
  std::vector<std::pair<std::regex, DType>> rules_;
};

}  // namespace

Result<Mix> parse_mix(std::string_view text) {
  const std::string wanted = lower(text);
  std::vector<std::string> known;
  for (const DType dtype : kDTypes) {
    if (!can_quantize(dtype)) continue;
    known.push_back(lower(traits(dtype).name));
    if (known.back() == wanted) return Mix{dtype, MixSize::plain};
  }
  for (const NamedMix& named : kMixes) {
    known.emplace_back(named.name);
    if (named.name == wanted) return named.mix;
  }
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
  const auto layers = static_cast<int64_t>(file.get_uint(fmt::format("{}.block_count", architecture)).value_or(1));
  std::vector<std::optional<DType>> types;
  for (const GgufTensor& tensor : file.tensors()) {
    auto& type = types.emplace_back();
    if (stays(tensor)) continue;
    const bool is_table = tensor.name == "token_embd.weight";
    const bool is_head = tensor.name == "output.weight" || (is_table && is_tied && !is_encoder);
    DType dtype = from_mix(choice.mix, tensor.name, layers);
    if (is_head) dtype = at_least(dtype, DType::q6_k);
    if (is_table && choice.embedding) dtype = *choice.embedding;
    if (is_head && choice.head) dtype = *choice.head;
    if (const auto ruled = TRY(patterns.find(tensor.name))) dtype = *ruled;
    type = fit_columns(dtype, tensor.shape.columns());
  }
  return types;
}

}  // namespace nanomind
