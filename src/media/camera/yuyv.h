// SPDX-License-Identifier: Apache-2.0
// Raw frames of cameras: YUYV, two pixels in four bytes (luma, blue difference, luma, red difference).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "media/image.h"

namespace nanomind {

// By ITU-R BT.601 with luma from 16 to 235, which V4L2 means unless a driver says otherwise (the 8-bit integers are
// those of "10-bit and 8-bit YUV video formats", Microsoft). Rows begin `stride` bytes apart and the last one may lack
// its padding; `bytes` has all pixels.
Image yuyv_to_image(std::span<const std::byte> bytes, Size size, size_t stride);

// Bytes that yuyv_to_image needs at least.
size_t yuyv_bytes(Size size, size_t stride);

// A binary PPM file.
std::vector<std::byte> ppm_file(const Image& image);

}  // namespace nanomind
