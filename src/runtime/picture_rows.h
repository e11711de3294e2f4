// SPDX-License-Identifier: Apache-2.0
// From a picture that is cut to its rows: tile by tile through the bricks and into slots of a ring, where a language
// model reads them.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "base/ring.h"
#include "models/vision.h"
#include "runtime/vision_encoder.h"
#include "text/tokenizer.h"

namespace nanomind {

// What a slot has: rows [count, width] of a picture.
struct RowsHeader {
  TokenId first = 0;  // of the picture
  int64_t begin = 0;  // first row in the slot
  int64_t count = 0;
};
using RowRing = Ring<RowsHeader, float>;

// How the patches of a tile go through the stages.
TileLayout layout_of(const VisionModel& model, const Image& tile);

// The rows of a part, as the grid that they are in the plane where that matters, else in one line.
PatchGrid part_grid(const VisionModel& model, const CutPicture& cut, const CutPicture::Part& part);

// Makes all rows of a picture, whose tokens begin with `first`, in the order of the prompt. Where they are rows of a
// tile the projector writes into the slots. Errors: those of running bricks; cancelled, also when nobody reads on.
Result<void> make_rows(VisionEncoder& encoder, const VisionModel& model, const CutPicture& cut, TokenId first,
                       RowRing& ring, const std::atomic<bool>* cancel);

}  // namespace nanomind
