// SPDX-License-Identifier: Apache-2.0
#include "convert/name_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace nanomind {
namespace {

// Fills in what the wildcards of `pattern` stand for, where `name` fits it.
bool match(std::string_view pattern, std::string_view name, RuleMatch& found) {
  for (const char p : pattern) {
    if (p != '#' && p != '@') {
      if (name.empty() || name.front() != p) return false;
      name.remove_prefix(1);
      continue;
    }
    const auto end = std::ranges::find_if_not(name, [](unsigned char c) { return std::isdigit(c) != 0; });
    const std::string digits(name.begin(), end);
    if (digits.empty() || digits.size() > 6) return false;
    name.remove_prefix(digits.size());
    if (p == '#')
      found.layer = digits;
    else
      found.expert = std::stoll(digits);
  }
  return name.empty();
}

}  // namespace

std::string RuleMatch::target() const {
  std::string name(rule->target);
  if (const size_t place = name.find('#'); place != std::string::npos) name.replace(place, 1, layer);
  return name.append(suffix);
}

std::optional<RuleMatch> find_rule(std::span<const NameRule> rules, std::string_view name) {
  for (const NameRule& rule : rules) {
    for (const std::string_view suffix : {".weight", ".bias", ""}) {
      if (!name.ends_with(suffix)) continue;
      RuleMatch found{.rule = &rule, .layer = {}, .suffix = suffix};
      if (match(rule.source, name.substr(0, name.size() - suffix.size()), found)) return found;
    }
  }
  return std::nullopt;
}

std::string_view without_prefixes(std::string_view name, std::span<const std::string_view> outer) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : outer) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  return name;
}

bool is_of_vision(std::string_view name) {
  constexpr std::string_view kModel[] = {"model."};
  constexpr std::string_view kParts[] = {"visual.",    "vision_tower.", "vision_model.", "multi_modal_projector.",
                                         "connector.", "merger.",       "image_newline", "embed_vision."};
  name = without_prefixes(name, kModel);
  return std::ranges::any_of(kParts, [&](std::string_view part) { return name.starts_with(part); });
}

Result<OutputTensor> whole_tensor(std::string name, const SafetensorsTensor& source) {
  TRY(check_convertible(source));
  if (source.shape.size() > kMaxDims)
    return fail(ErrorCode::corrupt, fmt::format("The tensor '{}' has too many dimensions.", source.name));
  Shape shape;
  for (const int64_t size : source.shape) shape.dims[static_cast<size_t>(shape.rank++)] = size;
  if (shape.rank == 0) shape = {1};
  return OutputTensor{.name = std::move(name), .shape = shape, .sources = {all_rows(source)}};
}

std::unexpected<Error> unknown_tensor(std::string_view name, std::string_view model_type) {
  return fail(ErrorCode::unsupported,
              fmt::format("The tensor '{}' is not known in models of the type '{}', so a file without it might "
                          "answer wrongly. Look for a GGUF file of the model instead.",
                          name, model_type));
}

}  // namespace nanomind
