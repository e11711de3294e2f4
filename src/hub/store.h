// SPDX-License-Identifier: Apache-2.0
// The folder of models on this machine. Every complete model is a GGUF file with a small record `<file>.json` beside
// it; unfinished ones end in `.partial`; what is derived from a model (packed weights) lies in `packed/` under names
// that begin with the GGUF's file name and a dot. Vision files (hub/vision_pair.h) lie there like models, but are parts
// of some; a file that several models have is there once, and its record names them all. The functions touch the disk
// only; no connection is ever made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nanomind {

struct StoredModel {
  std::string name = {};            // what to type: a catalog name, "org/repo[:quant]", or the file's stem
  std::filesystem::path path = {};  // the GGUF
  uint64_t bytes = 0;
  std::string sha256 = {};             // of the whole file, checked when it was stored
  std::string source = {};             // where it came from, for people
  std::string architecture = {};       // may be empty
  std::string licence = {};            // may be empty
  int64_t modified_ns = 0;             // the file's time when its hash was checked
  std::vector<std::string> also = {};  // other names that it was pulled under
  std::filesystem::path vision = {};   // the file here that makes it see; empty: none that is known

  bool has_name(std::string_view wanted) const;
};

// Where the folder is, from the environment as the caller read it; empty strings mean unset.
struct StoreLocation {
  std::string models;         // NANOMIND_MODELS: used as it is
  std::string xdg_data_home;  // XDG_DATA_HOME: + /nanomind/models
  std::string home;           // HOME: + /.local/share/nanomind/models
};

class Store {
 public:
  // Nothing is created before the first model is stored.
  explicit Store(std::filesystem::path root) : root_(std::move(root)) {}
  // invalid_argument when the location says nothing.
  static Result<Store> locate(const StoreLocation& location);

  const std::filesystem::path& root() const { return root_; }
  // Where side files go that are made from the model's weights. Made on demand by who writes them.
  std::filesystem::path packed_dir() const { return root_ / "packed"; }
  std::filesystem::path path_of(std::string_view file) const { return root_ / file; }

  // All complete models, by name; vision files are none. A record whose file is gone or has another size is left out.
  Result<std::vector<StoredModel>> list() const;
  // By one of its names, file name or file stem.
  Result<std::optional<StoredModel>> find(std::string_view name) const;
  // Removes the model, its record, its side files and unfinished downloads of it. not_found when there is none of
  // these; the bytes set free otherwise.
  Result<uint64_t> remove(std::string_view name) const;

  // For pull: the record of the file called `file`, if the file is there and has the size that was recorded.
  Result<std::optional<StoredModel>> read_record(std::string_view file) const;
  // Written aside and renamed.
  Result<void> write_record(const StoredModel& model) const;

 private:
  std::filesystem::path root_;
};

// Held while a file of the store is being made, by one thread of one process; released by the destructor or when the
// process ends.
class StoreLock {
 public:
  // Null when somebody else holds it. Makes the folder if needed.
  static Result<std::optional<StoreLock>> try_acquire(const Store& store, std::string_view file);
  StoreLock(StoreLock&& other) noexcept;
  StoreLock& operator=(StoreLock&& other) noexcept;
  ~StoreLock();

 private:
  explicit StoreLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace nanomind
