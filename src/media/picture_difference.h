// SPDX-License-Identifier: Apache-2.0
// How much two pictures differ, cheaply: whether it is worth asking a model what has changed.
#pragma once

#include <array>
#include <cstdint>

#include "media/image.h"

namespace nanomind {

inline constexpr int kThumbnailSide = 32;

// A picture shrunk to kThumbnailSide squared, whatever its shape, in gray levels 0..255 (the luma of ITU-R BT.601).
// Each level is the mean of many pixels, so that the noise of a camera has all but gone.
using Thumbnail = std::array<uint8_t, size_t{kThumbnailSide} * kThumbnailSide>;

// `image` has at least one pixel.
Thumbnail thumbnail(const Image& image);

// The mean absolute difference in gray levels: 0 for equal thumbnails, 255 for black and white. Something that covers a
// tenth of the picture and is 50 levels brighter than what was there makes 5.
double difference(const Thumbnail& a, const Thumbnail& b);

// The mean gray level.
double brightness(const Thumbnail& thumbnail);

}  // namespace nanomind
