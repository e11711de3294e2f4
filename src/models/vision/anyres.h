// SPDX-License-Identifier: Apache-2.0
// LLaVA-NeXT's and LLaVA-OneVision's "anyres" (arXiv 2408.03326): the picture is fitted into that of several known
// sizes which wastes least, cut into tiles of the tower's size, and read after the whole; the rows of the tiles are put
// together to one large grid, from which borders are taken off, and which is shrunk if it has too many.
#pragma once

#include <cstdint>
#include <vector>

#include "media/image.h"
#include "models/vision.h"

namespace nanomind {

struct AnyResolution {
  int tile = 0;             // pixels of a side
  int64_t side = 0;         // rows of a tile are side x side
  std::vector<Size> sizes;  // of the large picture; multiples of a tile
  int most_tiles = 9;       // worth of rows
  Rgb border;               // of pictures that are one of several
};

// One tile: the picture made square by borders, then scaled.
CutPicture cut_square(const Image& picture, int tile, Rgb border);
// One of several pictures is that with a mark; one alone is the whole and tiles.
CutPicture cut_any_resolution(const Image& picture, const AnyResolution& options, const PictureDetail& detail);

}  // namespace nanomind
