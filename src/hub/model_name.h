// SPDX-License-Identifier: Apache-2.0
// What a person types as MODEL: a catalog name, `org/repo[:quant]` of the hub, a web address, or a path. Pure text;
// nothing is looked up here.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace nanomind {

struct CatalogName {
  std::string name;  // lower case
  bool operator==(const CatalogName&) const = default;
};

struct HubName {
  std::string repo;   // "org/name"
  std::string quant;  // "Q4_K_M", a file name ending in .gguf, or empty: choose by the usual order
  bool operator==(const HubName&) const = default;
};

struct PathName {
  std::filesystem::path path;  // "~" not expanded
  bool operator==(const PathName&) const = default;
};

struct UrlName {
  std::string url;  // http or https; a hub page of a file is already its download address
  bool operator==(const UrlName&) const = default;
};

using ModelName = std::variant<CatalogName, HubName, PathName, UrlName>;

// Errors: invalid_argument for text that can be none of the four (empty, "..", control characters, ftp://, ...).
Result<ModelName> parse_model_name(std::string_view text);

// The form under which the store remembers the model; parsing it gives an equal name.
std::string to_string(const ModelName& name);

// The candidate that is close enough to be a slip of the keyboard, or nothing.
std::optional<std::string_view> closest_name(std::string_view typed, std::span<const std::string_view> candidates);

}  // namespace nanomind
