// SPDX-License-Identifier: Apache-2.0
// How a camera was held: EXIF's orientation tag, and turning the picture upright by it.
#pragma once

#include <cstddef>
#include <span>

#include "media/image.h"

namespace nanomind {

// 1 to 8 as in the Exif standard, tag 0x0112; 1 (upright) where the data has none or makes no sense. `exif` is a TIFF
// header and what follows it, with or without "Exif\0\0" before.
int exif_orientation(std::span<const std::byte> exif);

// The picture as it should be seen. `orientation` is 1 to 8.
Image oriented(Image image, int orientation);

}  // namespace nanomind
