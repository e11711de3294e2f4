// SPDX-License-Identifier: Apache-2.0
// A model that is published as safetensors: its files are fetched, checked one by one, and converted.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "hub/fetch.h"

namespace nanomind {

struct ConvertedHalf {
  std::string label;           // of the source, for people
  std::filesystem::path path;  // in the store; the name says which half of the model it is (hub/vision_pair.h)
  std::string vision;          // beside it, the other half, which will be asked for next; empty: none
};

// Leaves the converted bytes in `file`, which was made for the half's path. Work is done in the folder `path`.wheels;
// what has been fetched there from a repository stays until the half is complete, and the other half waits in such a
// folder of its own, so that nothing is fetched twice. Errors as of fetch.
Result<void> fetch_checkpoint(const CheckpointSource& source, const ConvertedHalf& half, PartialFile& file,
                              const PullOptions& options);

}  // namespace nanomind
