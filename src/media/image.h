// SPDX-License-Identifier: Apache-2.0
// A picture as models take it: rows of RGB bytes, top row first; and the bounds within which pictures from outside are
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nanomind {

struct Size {
  int width = 0;   // pixels
  int height = 0;  // pixels
  bool operator==(const Size&) const = default;
};

struct Rgb {
  uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Rgb&) const = default;
};

// A value: copies are independent, moves are cheap.
struct Image {
  Size size;
  std::vector<uint8_t> pixels;  // [height, width, 3], sRGB as stored in the file

  Image() = default;
  explicit Image(Size s) : size(s), pixels(3 * static_cast<size_t>(s.width) * static_cast<size_t>(s.height)) {}

  size_t row_bytes() const { return 3 * static_cast<size_t>(size.width); }
  uint8_t* row(int y) { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  const uint8_t* row(int y) const { return pixels.data() + static_cast<size_t>(y) * row_bytes(); }
  bool operator==(const Image&) const = default;
};

inline void fill(Image& image, Rgb color) {
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    image.pixels[i] = color.red;
    image.pixels[i + 1] = color.green;
    image.pixels[i + 2] = color.blue;
  }
}

// What is refused, before any pixel is decoded. While a picture is decoded it takes up to 11 bytes per pixel (a
// progressive JPEG).
struct ImageLimits {
  size_t bytes = 32u << 20;     // of the file
  int64_t pixels = 64'000'000;  // width times height; the largest photographs of phones have 50 million
  int side = 32'768;            // width or height
};

}  // namespace nanomind
