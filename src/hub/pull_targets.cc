// SPDX-License-Identifier: Apache-2.0
#include "hub/pull_targets.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <utility>

#include "base/sha256.h"
#include "format/gguf_split.h"
#include "hub/checkpoint_repo.h"
#include "hub/http_url.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

// A GGUF file name made of `text`, which may hold anything.
std::string safe_file_name(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    out += (c < 0x80 && std::isalnum(c)) || c == '.' || c == '-' || c == '_' ? static_cast<char>(c) : '_';
  while (out.starts_with('.')) out.erase(0, 1);
  if (out.size() > 200) out.erase(0, out.size() - 200);
  return out.ends_with(".gguf") ? out : out + ".gguf";
}

std::string base_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

PullTarget hub_target(const HubName& name, const HubFile& file) {
  std::string flat = name.repo;
  flat.replace(flat.find('/'), 1, "--");
  return {.name = to_string(ModelName(name)),
          .file = safe_file_name(fmt::format("{}--{}", flat, base_name(file.path))),
          .bytes = file.bytes,
          .sha256 = file.sha256,
          .sources = {HubSource{.repo = name.repo, .file = file.path}}};
}

// The vision file is fetched after the model.
ModelTargets pair(PullTarget model, PullTarget vision) {
  model.more_bytes = vision.bytes;
  model.vision = vision.file;
  return {.model = std::move(model), .vision = std::move(vision)};
}

}  // namespace

ModelTargets catalog_targets(const CatalogEntry& entry) {
  PullTarget model{.name = entry.name,
                   .file = entry.file,
                   .bytes = entry.bytes,
                   .sha256 = entry.sha256,
                   .architecture = entry.architecture,
                   .licence = entry.licence,
                   .sources = entry.sources};
  if (!entry.vision) return {.model = std::move(model), .vision = {}};
  return pair(std::move(model), {.name = entry.name,
                                 .file = entry.vision->file,
                                 .bytes = entry.vision->bytes,
                                 .sha256 = entry.vision->sha256,
                                 .licence = entry.licence,
                                 .sources = entry.vision->sources});
}

ModelTargets hub_targets(const HubName& name, const HubChoice& choice) {
  PullTarget model = hub_target(name, choice.model);
  if (!choice.vision) return {.model = std::move(model), .vision = {}};
  return pair(std::move(model), hub_target(name, *choice.vision));
}

ModelTargets checkpoint_targets(const HubName& name, const CheckpointSource& source) {
  const HubFile converted{.path = fmt::format("{}-{}.gguf", source.title, traits(source.dtype).name)};
  PullTarget model = hub_target(name, converted);
  model.sources = {source};
  if (!sees(source.files)) return {.model = std::move(model), .vision = {}};
  PullTarget vision = model;
  vision.file = safe_file_name("mmproj-" + model.file);
  return pair(std::move(model), std::move(vision));
}

PullTarget url_target(const UrlName& name) {
  const std::string shown = public_url(name.url);
  std::string file = base_name(shown);
  // An address that names no file (".../download?id=5") is told apart by its hash.
  if (!file.ends_with(".gguf")) file += fmt::format("-{:.8}", hex(sha256(std::as_bytes(std::span(name.url)))));
  file = safe_file_name(file);
  return {.name = fs::path(file).stem().string(), .file = file, .sources = {UrlSource{name.url}}};
}

PullTarget path_target(const PathName& name) {
  std::string file = name.path.filename().string();
  // Parts are joined, whichever of them is named.
  if (part_names(name.path).size() > 1) file.resize(file.size() - std::string_view("-00001-of-00002.gguf").size());
  file = safe_file_name(file);
  return {.name = fs::path(file).stem().string(), .file = file};
}

PullTarget path_vision_target(const PullTarget& model) {
  return {.name = model.name, .file = safe_file_name("mmproj-" + model.file)};
}

std::string store_key(const ModelName& name, const Catalog& catalog) {
  if (const auto* short_name = std::get_if<CatalogName>(&name)) {
    const CatalogEntry* entry = catalog.find(short_name->name);
    return entry ? entry->file : short_name->name;
  }
  if (const auto* url = std::get_if<UrlName>(&name)) return url_target(*url).file;
  if (const auto* path = std::get_if<PathName>(&name)) return path_target(*path).file;
  return to_string(name);
}

}  // namespace nanomind
