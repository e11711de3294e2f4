// SPDX-License-Identifier: Apache-2.0
// Models that are distributed as several GGUF files, NAME-00001-of-00003.gguf and so on: finds the parts and joins them
// into the one file that everything else works with.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"

namespace nanomind {

// All parts of the set that `path` belongs to, in order, whichever part it names; only `path` when its name is not that
// of a part. Errors: not_found, naming every missing part.
Result<std::vector<std::filesystem::path>> find_parts(const std::filesystem::path& path);

// Names that complete the set of `path` (itself included), without looking whether they exist; for downloads.
std::vector<std::filesystem::path> part_names(const std::filesystem::path& path);

// Writes one GGUF file with the metadata of the first part, except the keys that describe the split, and the tensors of
// all. The parts must be complete and in order. Nothing appears at `target` on failure.
Result<void> join_parts(std::span<const std::filesystem::path> parts, const std::filesystem::path& target);

}  // namespace nanomind
