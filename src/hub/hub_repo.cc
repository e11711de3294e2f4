// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_repo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "format/gguf_split.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

constexpr uint64_t kListingLimit = 16 << 20;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The quantisation as a word of its own: "Q4_K" must not match "Q4_K_M", "F16" must not match "BF16".
bool has_quant(std::string_view path, std::string_view quant) {
  const std::string name = lower(path);
  const std::string word = lower(quant);
  for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const bool starts =
        at == 0 || name[at - 1] == '-' || name[at - 1] == '.' || name[at - 1] == '/' || name[at - 1] == '_';
    const size_t end = at + word.size();
    const bool ends = end == name.size() || name[end] == '-' || name[end] == '.' || name[end] == '/';
    if (starts && ends) return true;
  }
  return false;
}

// Every byte that is not allowed in a path segment as %XX; slashes stay.
std::string escape_path(std::string_view path) {
  std::string out;
  for (const unsigned char c : path) {
    const bool plain = (c < 0x80 && std::isalnum(c)) || c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return out;
}

std::string_view without_slash(std::string_view endpoint) {
  while (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  return endpoint;
}

bool is_safe_path(std::string_view path) {
  return !path.empty() && path.front() != '/' && path.find("..") == std::string_view::npos &&
         std::ranges::none_of(path, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

const HubFile* choose(const std::vector<HubFile>& files, std::string_view wanted) {
  if (lower(wanted).ends_with(".gguf")) {
    const auto found =
        std::ranges::find_if(files, [&](const HubFile& f) { return f.path == wanted || base_name(f.path) == wanted; });
    return found == files.end() ? nullptr : &*found;
  }
  std::vector<std::string_view> order = {wanted};
  if (wanted.empty()) order = {"Q4_K_M", "Q8_0"};
  for (const std::string_view quant : order) {
    const auto found = std::ranges::find_if(files, [&](const HubFile& f) { return has_quant(f.path, quant); });
    if (found != files.end()) return &*found;
  }
  return wanted.empty() && !files.empty() ? &files.front() : nullptr;
}

HubFile parse_hub_file(const Json& item, const std::string& path) {
  HubFile file{.path = path, .bytes = json_count(item, "size").value_or(0), .sha256 = {}};
  if (const Json* lfs = json_member(item, "lfs")) {
    file.sha256 = json_text(*lfs, "oid").value_or("");
    file.bytes = json_count(*lfs, "size").value_or(file.bytes);
  }
  return file;
}

std::optional<HubFile> choose_vision(const HubFile& model, const std::vector<HubFile>& models,
                                     const std::vector<HubFile>& vision_files) {
  std::vector<std::string> paths;
  for (const HubFile& file : models) paths.push_back(file.path);
  for (const HubFile& file : vision_files) paths.push_back(file.path);
  const auto chosen = choose_vision_file(model.path, paths);
  if (!chosen) return std::nullopt;
  return *std::ranges::find(vision_files, *chosen, &HubFile::path);
}

}  // namespace

bool is_model_file(std::string_view path) {
  const std::string name = lower(base_name(path));
  if (!name.ends_with(".gguf")) return false;
  if (is_vision_file(path)) return false;
  for (const std::string_view other : {"imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"}) {
    if (name.find(other) != std::string::npos) return false;
  }
  return true;
}

Result<std::vector<HubFile>> parse_hub_listing(std::string_view listing_json, std::string_view repo) {
  const auto listing = parse_json(listing_json);
  if (!listing || !listing->is_array())
    return fail(ErrorCode::network, fmt::format("The hub's list of files of {} cannot be read.", repo));
  std::vector<HubFile> files;
  for (const Json& item : *listing) {
    const auto path = json_text(item, "path");
    if (!path || json_text(item, "type").value_or("file") != "file" || !is_safe_path(*path)) continue;
    files.push_back(parse_hub_file(item, *path));
  }
  return files;
}

Result<HubChoice> choose_hub_files(std::string_view listing_json, const HubName& name) {
  std::vector<HubFile> files, vision_files;
  for (HubFile& file : TRY(parse_hub_listing(listing_json, name.repo))) {
    if (is_vision_file(file.path)) {
      vision_files.push_back(std::move(file));
    } else if (is_model_file(file.path)) {
      files.push_back(std::move(file));
    }
  }
  const HubFile* file = choose(files, name.quant);
  if (!file) {
    if (files.empty()) {
      return fail(
          ErrorCode::not_found,
          fmt::format("{} has no GGUF model files. Look for a repository whose name ends in -GGUF.", name.repo));
    }
    std::vector<std::string_view> there;
    for (const HubFile& f : files) there.push_back(f.path);
    return fail(ErrorCode::not_found,
                fmt::format("{} has no '{}'. It has: {}.", name.repo, name.quant, fmt::join(there, ", ")));
  }
  if (part_names(file->path).size() > 1) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} in {} is split into several files, which cannot be pulled yet. Choose another "
                            "quantisation, or merge the parts and pull the file by its path.",
                            file->path, name.repo));
  }
  return HubChoice{.model = *file, .vision = choose_vision(*file, files, vision_files)};
}

Result<std::string> list_hub_files(const HttpClient& http, const HubOptions& hub, std::string_view repo,
                                   std::string_view revision, std::stop_token stop) {
  const HttpRequest request{.url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", without_slash(hub.endpoint),
                                               escape_path(repo), escape_path(revision)),
                            .token = hub.token};
  return http.get_text(request, kListingLimit, stop);
}

std::string hub_file_url(std::string_view endpoint, std::string_view repo, std::string_view revision,
                         std::string_view file) {
  return fmt::format("{}/{}/resolve/{}/{}", without_slash(endpoint), escape_path(repo), escape_path(revision),
                     escape_path(file));
}

}  // namespace nanomind
