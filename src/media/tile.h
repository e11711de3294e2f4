// SPDX-License-Identifier: Apache-2.0
// Tiles: the parts of a picture, each scaled in its own way, that models look at.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace nanomind {

// What a person chooses of how closely pictures are looked at.
struct PictureDetail {
  std::optional<int> most_tiles;  // into which one picture is cut, besides the whole; absent: as the model was trained
  enum class Company : uint8_t { alone, several } company = Company::alone;  // pictures of one message
  auto operator<=>(const PictureDetail&) const = default;
};

// Where a tile lies: the point (x, y) of the original is at ((x - left) * scale_x, (y - top) * scale_y) on it.
struct TilePlace {
  double left = 0, top = 0, scale_x = 1, scale_y = 1;
};

}  // namespace nanomind
