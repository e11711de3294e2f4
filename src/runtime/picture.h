// SPDX-License-Identifier: Apache-2.0
// Pictures as users of an engine know them.
#pragma once

#include <cstdint>
#include <vector>

#include "media/image.h"
#include "media/tile.h"
#include "text/chat_template.h"

namespace nanomind {

// What becomes of the bricks that see after the pictures that they were loaded for.
enum class VisionBricks : uint8_t { stay, leave };

inline constexpr uint64_t kPictureCacheBytes = uint64_t{256} << 20;  // on disk; some hundred pictures

struct SeenPicture {
  PicturePrompt prompt;          // for Message::pictures
  Size size;                     // of the original in pixels, upright
  int64_t rows = 0;              // of the context that it takes, without markers
  std::vector<TilePlace> tiles;  // where what the model looks at lies in the original
};

// How long a picture took on its way to rows, and what that took.
struct PictureMeasurement {
  struct Tile {
    Size size;                        // pixels
    int64_t rows = 0;                 // that it became
    uint64_t products = 0;            // multiply-adds of weights,
    uint64_t attention_products = 0;  // and of queries with keys and of weights with values
    double ms = 0;                    // from pixels to rows
  };
  double cut_ms = 0;  // from the file to tiles
  std::vector<Tile> tiles;
};

}  // namespace nanomind
