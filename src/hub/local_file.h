// SPDX-License-Identifier: Apache-2.0
// Takes a GGUF file of this machine into the store: by a hard link where the file system allows it, else by copying;
// the parts of a split model are joined.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "hub/fetch.h"
#include "hub/pull.h"
#include "hub/store.h"

namespace nanomind {

// Checks `source` and gives its bytes the name target.file in the store; returns their SHA-256. What has that name is
// replaced. The caller holds the StoreLock. Errors: not_found, corrupt, unsupported, no_space, io, cancelled.
Result<std::string> import_file(const std::filesystem::path& source, const PullTarget& target, const Store& store,
                                const PullOptions& options);

// SHA-256 of a file, told to `options.progress` as verifying.
Result<std::string> hash_file(const std::filesystem::path& path, const std::string& label, const PullOptions& options);

}  // namespace nanomind
