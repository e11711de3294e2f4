// SPDX-License-Identifier: Apache-2.0
#include "hub/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "hub/partial_file.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelEnding = ".gguf";
constexpr std::string_view kRecordEnding = ".json";

fs::path record_path(const fs::path& model) { return model.string() + std::string(kRecordEnding); }

std::optional<StoredModel> parse_record(const fs::path& model) {
  std::ifstream stream(record_path(model));
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) return std::nullopt;
  const auto json = parse_json(text.str());
  if (!json) return std::nullopt;
  StoredModel record{.name = json_text(*json, "name").value_or(model.stem().string()),
                     .path = model,
                     .bytes = json_count(*json, "bytes").value_or(0),
                     .sha256 = json_text(*json, "sha256").value_or(""),
                     .source = json_text(*json, "source").value_or(""),
                     .architecture = json_text(*json, "architecture").value_or(""),
                     .licence = json_text(*json, "licence").value_or(""),
                     .modified_ns = json_integer(*json, "modified_ns").value_or(0)};
  if (const Json* also = json_member(*json, "also"); also && also->is_array()) {
    for (const Json& name : *also) {
      if (name.is_string()) record.also.push_back(name.get<std::string>());
    }
  }
  // A plain file name, so that nothing outside the store is meant.
  const std::string vision = json_text(*json, "vision").value_or("");
  if (is_vision_file(vision) && vision.find('/') == std::string::npos) record.vision = model.parent_path() / vision;
  return record;
}

// Removes a file or folder and says how many bytes that set free.
uint64_t remove_counting(const fs::path& path) {
  std::error_code error;
  uint64_t bytes = 0;
  if (fs::is_directory(path, error)) {
    for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
    }
    fs::remove_all(path, error);
    return bytes;
  }
  bytes = fs::file_size(path, error);
  if (error) bytes = 0;
  return fs::remove(path, error) ? bytes : 0;
}

}  // namespace

bool StoredModel::has_name(std::string_view wanted) const {
  return name == wanted || std::ranges::find(also, wanted) != also.end();
}

Result<Store> Store::locate(const StoreLocation& location) {
  if (!location.models.empty()) return Store(location.models);
  if (!location.xdg_data_home.empty()) return Store(fs::path(location.xdg_data_home) / "nanomind" / "models");
  if (!location.home.empty()) return Store(fs::path(location.home) / ".local" / "share" / "nanomind" / "models");
  return fail(ErrorCode::invalid_argument, "There is no place for models: set HOME, or NANOMIND_MODELS to a folder.");
}

Result<std::vector<StoredModel>> Store::list() const {
  std::vector<StoredModel> models;
  std::error_code error;
  if (!fs::exists(root_, error)) return models;
  fs::directory_iterator it(root_, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (!file.ends_with(kModelEnding) || is_vision_file(file)) continue;
    if (auto record = TRY(read_record(file))) {
      models.push_back(*std::move(record));
    } else if (std::error_code ignored; !fs::exists(record_path(it->path()), ignored) && it->is_regular_file(ignored)) {
      // Put here by hand: as good as any other, only nobody has checked it.
      models.push_back({.name = it->path().stem().string(),
                        .path = it->path(),
                        .bytes = it->file_size(ignored),
                        .source = "put here by hand"});
    }
  }
  if (error)
    return fail(ErrorCode::io, fmt::format("The folder {} cannot be read: {}.", root_.string(), error.message()));
  std::ranges::sort(models, {}, &StoredModel::name);
  return models;
}

Result<std::optional<StoredModel>> Store::find(std::string_view name) const {
  for (StoredModel& model : TRY(list())) {
    if (model.has_name(name) || model.path.filename() == name || model.path.stem() == name) return std::move(model);
  }
  return std::nullopt;
}

Result<uint64_t> Store::remove(std::string_view name) const {
  std::string file(name);
  if (const auto model = TRY(find(name))) file = model->path.filename().string();
  if (file.empty() || file.find('/') != std::string::npos || file.front() == '.') {
    return fail(ErrorCode::not_found, fmt::format("There is no model '{}' in {}.", name, root_.string()));
  }
  std::error_code error;
  if (!file.ends_with(kModelEnding)) file += kModelEnding;
  if (!fs::exists(root_, error))
    return fail(ErrorCode::not_found, fmt::format("There is no model '{}' in {}.", name, root_.string()));
  const auto lock = TRY(StoreLock::try_acquire(*this, file));
  if (!lock) return fail(ErrorCode::io, fmt::format("'{}' is being pulled at this moment; stop that first.", name));

  std::vector<fs::path> doomed;
  for (const std::string_view ending : {"", ".json", ".partial", ".partial.json", ".wheels"}) {
    const fs::path path = path_of(file + std::string(ending));
    if (fs::symlink_status(path, error).type() != fs::file_type::not_found) doomed.push_back(path);
  }
  fs::directory_iterator it(packed_dir(), error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(file + ".")) doomed.push_back(it->path());
  }
  if (doomed.empty())
    return fail(ErrorCode::not_found, fmt::format("There is no model '{}' in {}.", name, root_.string()));
  uint64_t bytes = 0;
  for (const fs::path& path : doomed) {
    bytes += remove_counting(path);
    if (fs::symlink_status(path, error).type() != fs::file_type::not_found) {
      return fail(ErrorCode::io, fmt::format("{} cannot be removed; check who owns the folder.", path.string()));
    }
  }
  return bytes;
}

Result<std::optional<StoredModel>> Store::read_record(std::string_view file) const {
  const fs::path path = path_of(file);
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  auto record = parse_record(path);
  if (!record || record->bytes != bytes) return std::nullopt;
  return record;
}

Result<void> Store::write_record(const StoredModel& model) const {
  Json json = {{"name", model.name},
               {"bytes", model.bytes},
               {"sha256", model.sha256},
               {"source", model.source},
               {"licence", model.licence},
               {"architecture", model.architecture},
               {"modified_ns", model.modified_ns}};
  if (!model.also.empty()) json["also"] = model.also;
  if (!model.vision.empty()) json["vision"] = model.vision.filename().string();
  const std::string text = json_dump(json);
  AtomicFile file = TRY(AtomicFile::create(record_path(model.path)));
  TRY(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

Result<std::optional<StoreLock>> StoreLock::try_acquire(const Store& store, std::string_view file) {
  const fs::path folder = store.root() / ".locks";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return fail(ErrorCode::io,
                fmt::format("The folder {} cannot be made: {}. Set NANOMIND_MODELS to a folder that you may write to.",
                            folder.string(), error.message()));
  }
  const fs::path path = folder / (std::string(file) + ".lock");
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return fail(ErrorCode::io,
                fmt::format("The lock {} cannot be opened: {}. Set NANOMIND_MODELS to a folder that you may write to.",
                            path.string(), std::strerror(errno)));
  }
  StoreLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return std::nullopt;
  return fail(ErrorCode::io, fmt::format("The lock {} cannot be taken: {}.", path.string(), std::strerror(errno)));
}

StoreLock::StoreLock(StoreLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

StoreLock& StoreLock::operator=(StoreLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

StoreLock::~StoreLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace nanomind
