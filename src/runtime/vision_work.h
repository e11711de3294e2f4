// SPDX-License-Identifier: Apache-2.0
// What encoding a tile takes, counted from the programs of its stages.
#pragma once

#include <cstdint>

#include "models/vision.h"

namespace nanomind {

struct TileWork {
  uint64_t products = 0;            // multiply-adds of weights,
  uint64_t attention_products = 0;  // and of queries with keys and of weights with values
};

// `layout` is what the model made of the tile's grid.
TileWork work_of(const VisionModel& model, const TileLayout& layout);

}  // namespace nanomind
