// SPDX-License-Identifier: Apache-2.0
// Fetches one file from one source into its partial file and checks that these are the bytes that were promised.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/catalog.h"
#include "hub/partial_file.h"
#include "hub/pull.h"

namespace nanomind {

// What a pull is after.
struct PullTarget {
  std::string name = {};    // under which the store remembers it
  std::string file = {};    // in the store
  uint64_t bytes = 0;       // 0: not known before
  uint64_t more_bytes = 0;  // that files of the same model will need afterwards
  std::string sha256 = {};  // empty: not known before
  std::string vision = {};  // the file in the store that makes it see, and is fetched next; empty: none
  std::string architecture = {};
  std::string licence = {};
  std::vector<ModelSource> sources = {};
};

// Identifies the source in the partial file's state; contains no secrets.
std::string source_key(const ModelSource& source);

// Brings all bytes into `file` and returns their SHA-256. Goes on from what `file` has. Bytes that do not fit the
// target's size or hash, or that are no GGUF file, are discarded with the error corrupt.
Result<std::string> fetch(const ModelSource& source, const PullTarget& target, const std::filesystem::path& path,
                          PartialFile& file, const PullOptions& options);

}  // namespace nanomind
