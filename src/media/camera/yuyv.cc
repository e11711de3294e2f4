// SPDX-License-Identifier: Apache-2.0
#include "media/camera/yuyv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"

namespace nanomind {
namespace {

size_t row_bytes(Size size) { return 4 * ((static_cast<size_t>(size.width) + 1) / 2); }

uint8_t clamped(int value) { return static_cast<uint8_t>(std::clamp(value >> 8, 0, 255)); }

void put(uint8_t* pixel, int luma, int blue, int red) {
  const int c = 298 * (luma - 16) + 128, d = blue - 128, e = red - 128;
  pixel[0] = clamped(c + 409 * e);
  pixel[1] = clamped(c - 100 * d - 208 * e);
  pixel[2] = clamped(c + 516 * d);
}

}  // namespace

size_t yuyv_bytes(Size size, size_t stride) {
  return stride * (static_cast<size_t>(size.height) - 1) + row_bytes(size);
}

Image yuyv_to_image(std::span<const std::byte> bytes, Size size, size_t stride) {
  CHECK(size.width > 0 && size.height > 0 && stride >= row_bytes(size) && bytes.size() >= yuyv_bytes(size, stride));
  Image image(size);
  for (int y = 0; y < size.height; ++y) {
    const auto* source = reinterpret_cast<const uint8_t*>(bytes.data()) + static_cast<size_t>(y) * stride;
    uint8_t* target = image.row(y);
    for (int x = 0; x < size.width; ++x, target += 3) {
      const uint8_t* pair = source + 4 * (x / 2);
      put(target, pair[2 * (x % 2)], pair[1], pair[3]);
    }
  }
  return image;
}

std::vector<std::byte> ppm_file(const Image& image) {
  const std::string header = fmt::format("P6\n{} {}\n255\n", image.size.width, image.size.height);
  std::vector<std::byte> file(header.size() + image.pixels.size());
  std::ranges::copy(std::as_bytes(std::span(header)), file.begin());
  std::ranges::copy(std::as_bytes(std::span(image.pixels)), file.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return file;
}

}  // namespace nanomind
