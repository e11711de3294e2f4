// SPDX-License-Identifier: Apache-2.0
// Which files a model's name stands for, and what they are called in the store.
#pragma once

#include <optional>
#include <string>

#include "hub/fetch.h"
#include "hub/hub_repo.h"

namespace nanomind {

// A model, and what makes it see.
struct ModelTargets {
  PullTarget model;
  std::optional<PullTarget> vision;
};

ModelTargets catalog_targets(const CatalogEntry& entry);
ModelTargets hub_targets(const HubName& name, const HubChoice& choice);
// Of a repository without GGUF files: both halves of what is converted.
ModelTargets checkpoint_targets(const HubName& name, const CheckpointSource& source);
PullTarget url_target(const UrlName& name);
PullTarget path_target(const PathName& name);
// Of the vision file beside a file of this machine that was taken in as `model`.
PullTarget path_vision_target(const PullTarget& model);

// The file in the store that `name` would have, as far as that is known without asking anybody.
std::string store_key(const ModelName& name, const Catalog& catalog);

}  // namespace nanomind
