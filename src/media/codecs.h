// SPDX-License-Identifier: Apache-2.0
// One function per format, each in the file of its name; decode.cc alone calls them. They check the size against the
// limits before they allocate, and return the picture as stored together with the turn that EXIF asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "media/image.h"

namespace nanomind {

struct Decoded {
  Image image;
  int orientation = 1;  // of EXIF, 1 to 8
};

Result<Decoded> decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits);
Result<Decoded> decode_png(std::span<const std::byte> bytes, const ImageLimits& limits);
Result<Decoded> decode_webp(std::span<const std::byte> bytes, const ImageLimits& limits);
Result<Decoded> decode_gif(std::span<const std::byte> bytes, const ImageLimits& limits);
Result<Decoded> decode_bmp(std::span<const std::byte> bytes, const ImageLimits& limits);
Result<Decoded> decode_pnm(std::span<const std::byte> bytes, const ImageLimits& limits);

inline constexpr std::string_view kEndsTooEarly = "it ends too early";

// The size if a picture of it may be decoded.
Result<Size> check_size(int64_t width, int64_t height, const ImageLimits& limits);

// An error that says which format could not be read and why; `reason` is a clause without full stop.
std::unexpected<Error> damaged(std::string_view format, std::string_view reason);
std::unexpected<Error> not_supported(std::string_view format, std::string_view reason);

// `value` with opacity `alpha` (255 = opaque) before white, rounded to nearest.
inline uint8_t over_white(uint8_t value, uint8_t alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

// Makes [n, 4] bytes with alpha into [n, 3] before white. `rgb` may be `rgba` itself.
inline void flatten(const uint8_t* rgba, uint8_t* rgb, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i, rgba += 4, rgb += 3) {
    const uint8_t alpha = rgba[3];
    for (int c = 0; c < 3; ++c) rgb[c] = over_white(rgba[c], alpha);
  }
}

}  // namespace nanomind
