// SPDX-License-Identifier: Apache-2.0
// One file of a language model and the vision file that belongs to it: all metadata and tensors of the first, and those
// of the second that the first does not have (keys clip.*, tensors v.* and mm.*).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/result.h"
#include "format/gguf.h"

namespace nanomind {

// Whether two such files belong together, which takes the engine to know; success or its error.
using PairCheck = std::function<Result<void>(const GgufFile& model, const GgufFile& vision)>;

// Returns the size of what was written, in bytes. Errors: not_found, corrupt; invalid_argument when the files are not
// such a pair, when one is only part of a model, or when they name a tensor alike; those of `check`, which is asked
// before anything is written; no_space, io. `target` then is as before.
Result<uint64_t> join_files(const std::filesystem::path& model, const std::filesystem::path& vision,
                            const std::filesystem::path& target, const PairCheck& check);

}  // namespace nanomind
