// SPDX-License-Identifier: Apache-2.0
// Repositories of the hub that have a model as its publisher lays it out (safetensors), and no GGUF file: which of
// their files a conversion reads, and what it makes of them.
#pragma once

#include <stop_token>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/catalog.h"
#include "hub/hub_repo.h"

namespace nanomind {

// Whether a listing of the hub is of such a repository.
bool lists_checkpoint(std::string_view listing_json);

// The files that are fetched, with hashes where the listing has them and sizes elsewhere. Errors: not_found when it is
// no such repository.
Result<std::vector<CheckpointFile>> checkpoint_files(std::string_view listing_json, std::string_view repo);

// What a name stands for there: F32, F16, BF16 or Q8_0, which is taken when nothing is said. Errors: not_found;
// invalid_argument for other types.
Result<CheckpointSource> checkpoint_source(std::string_view listing_json, const HubName& name);

// Whether these files are those of a model that sees.
bool sees(const std::vector<CheckpointFile>& files);

}  // namespace nanomind
