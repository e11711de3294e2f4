// SPDX-License-Identifier: Apache-2.0
#include "hub/model_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace nanomind {
namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// One segment of a repository's name, a file's name or a quantisation: letters, digits, ".", "_", "-"; no leading dot
// or dash.
bool is_plain(std::string_view segment) {
  if (segment.empty() || segment.size() > 128 || segment.front() == '.' || segment.front() == '-') return false;
  return std::ranges::all_of(segment,
                             [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t end = text.find(separator);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

// "org/name" or "org/name:quant"; a quant may also be a file inside the repository ("dir/file.gguf").
std::optional<HubName> parse_hub(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view repo = text.substr(0, colon);
  const auto segments = split(repo, '/');
  if (segments.size() != 2 || !std::ranges::all_of(segments, is_plain)) return std::nullopt;
  HubName name{.repo = std::string(repo), .quant = {}};
  if (colon == std::string_view::npos) return name;
  name.quant = text.substr(colon + 1);
  if (!std::ranges::all_of(split(name.quant, '/'), is_plain)) return std::nullopt;
  return name;
}

Result<ModelName> parse_url(std::string_view text) {
  const std::string scheme = lower(text.substr(0, text.find("://")));
  if (scheme != "http" && scheme != "https") {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' uses {}://, but models are fetched from http:// and https:// addresses only; "
                            "give a file on this machine as a path.",
                            text, scheme));
  }
  const std::string_view rest = text.substr(scheme.size() + 3);
  const std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  if (host.empty()) return fail(ErrorCode::invalid_argument, fmt::format("'{}' names no server.", text));
  std::string_view path = rest.substr(host.size());
  if (host != "huggingface.co" && host != "hf.co") return UrlName{std::string(text)};
  // Addresses of pages, as they are copied from a browser.
  path = path.substr(0, path.find_first_of("?#"));
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.starts_with('/')) path.remove_prefix(1);
  if (auto hub = parse_hub(path)) return *std::move(hub);
  const auto segments = split(path, '/');
  if (segments.size() < 5 || segments[2] != "blob") return UrlName{std::string(text)};
  std::string url = fmt::format("https://{}/{}/{}/resolve", host, segments[0], segments[1]);
  for (size_t i = 3; i < segments.size(); ++i) url += fmt::format("/{}", segments[i]);
  return UrlName{std::move(url)};
}

// Edits (insert, delete, replace, swap of neighbours) between two words: optimal string alignment.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

Result<ModelName> parse_model_name(std::string_view text) {
  if (text.empty()) return fail(ErrorCode::invalid_argument, "The model's name is empty.");
  if (std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    return fail(ErrorCode::invalid_argument, "The model's name contains control characters.");
  }
  if (text.find("://") != std::string_view::npos) return parse_url(text);
  if (starts_with_any(text, {"/", "./", "../", "~"})) return PathName{text};
  for (const std::string_view prefix : {"hf.co/", "huggingface.co/", "hf:"}) {
    if (!text.starts_with(prefix)) continue;
    if (auto hub = parse_hub(text.substr(prefix.size()))) return *std::move(hub);
  }
  if (text.find('/') != std::string_view::npos && text.find(':') != std::string_view::npos) {
    if (auto hub = parse_hub(text)) return *std::move(hub);
  }
  if (lower(text).ends_with(".gguf")) return PathName{text};
  if (auto hub = parse_hub(text)) return *std::move(hub);
  std::string name = lower(text);
  std::ranges::replace(name, ':', '-');  // "family:size", as other programs write it
  if (is_plain(name)) return CatalogName{std::move(name)};
  return fail(
      ErrorCode::invalid_argument,
      fmt::format(
          "'{}' is not a model's name. Give a name from the catalog, org/repo[:quant], an address, or a path such as "
          "./{} for a file.",
          text, text));
}

std::string to_string(const ModelName& name) {
  struct Visitor {
    std::string operator()(const CatalogName& n) const { return n.name; }
    std::string operator()(const HubName& n) const { return n.quant.empty() ? n.repo : n.repo + ":" + n.quant; }
    std::string operator()(const PathName& n) const { return n.path.string(); }
    std::string operator()(const UrlName& n) const { return n.url; }
  };
  return std::visit(Visitor{}, name);
}

std::optional<std::string_view> closest_name(std::string_view typed, std::span<const std::string_view> candidates) {
  // Very long words are no slips, and would make the comparison slow.
  if (typed.empty() || typed.size() > 128) return std::nullopt;
  std::optional<std::string_view> best;
  size_t best_distance = std::max<size_t>(typed.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    // The beginning of a name is as good as one slip.
    const size_t distance = typed.size() >= 3 && candidate.starts_with(typed) ? 1 : edit_distance(typed, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace nanomind
