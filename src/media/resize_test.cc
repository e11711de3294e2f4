// SPDX-License-Identifier: Apache-2.0
// Against Pillow 12.3: what it makes of pseudo-random pictures of odd sizes, bit for bit (tools/golden/pictures.py).
#include "media/resize.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "media/test_pictures.h"

namespace nanomind {
namespace {

// The same bytes as noise() of the script.
Image noise(Size size) {
  Image image(size);
  uint32_t state = static_cast<uint32_t>(size.width * 1000 + size.height);
  for (uint8_t& sample : image.pixels) {
    state = state * 1664525 + 1013904223;
    sample = static_cast<uint8_t>(state >> 24);
  }
  for (int y = 1; y < size.height; y += 2) {
    for (int x = 0; x < size.width; ++x) {
      std::fill_n(image.row(y) + 3 * x, 3, static_cast<uint8_t>(x * 255 / std::max(size.width - 1, 1)));
    }
  }
  return image;
}

const std::map<std::string, Filter> kFilters = {{"nearest", Filter::nearest},
                                                {"bilinear", Filter::bilinear},
                                                {"bicubic", Filter::bicubic},
                                                {"lanczos", Filter::lanczos}};

TEST(ResizeTest, EqualsPillow) {
  std::istringstream stream(read_picture("resize.bin"));
  std::string line;
  int cases = 0;
  while (std::getline(stream, line)) {
    std::istringstream head(line);
    std::string filter;
    Size from, to;
    head >> filter >> from.width >> from.height >> to.width >> to.height;
    ASSERT_TRUE(head) << line;
    Image expected(to);
    stream.read(reinterpret_cast<char*>(expected.pixels.data()), static_cast<std::streamsize>(expected.pixels.size()));
    ASSERT_TRUE(stream);
    EXPECT_EQ(max_difference(resize(noise(from), to, kFilters.at(filter)), expected), 0) << line;
    ++cases;
  }
  EXPECT_EQ(cases, 4 * 14);
}

TEST(ResizeTest, KeepsFlatColoursAndTheSameSize) {
  Image flat({131, 17});
  for (size_t i = 0; i < flat.pixels.size(); ++i) flat.pixels[i] = static_cast<uint8_t>(100 + i % 3 * 77);
  const Image picture = noise({23, 31});
  for (const auto& [name, filter] : kFilters) {
    EXPECT_EQ(resize(picture, picture.size, filter), picture) << name;
    for (const Size size : {Size{1, 1}, {7, 90}, {260, 3}}) {
      const Image scaled = resize(flat, size, filter);
      for (size_t i = 0; i < scaled.pixels.size(); ++i) ASSERT_EQ(scaled.pixels[i], 100 + i % 3 * 77) << name;
    }
  }
}

TEST(ResizeTest, AWindowIsCutOutOfTheWhole) {
  const Image picture = noise({41, 29});
  for (const auto& [name, filter] : kFilters) {
    for (const Size scaled : {Size{19, 60}, {90, 11}, {41, 29}, {41, 50}}) {
      const Image whole = resize(picture, scaled, filter);
      const Window window{5, 3, {scaled.width - 9, scaled.height - 7}};
      const Image part = resize_window(picture, scaled, window, filter);
      ASSERT_EQ(part.size, window.size);
      for (int y = 0; y < part.size.height; ++y) {
        ASSERT_EQ(std::memcmp(part.row(y), whole.row(y + window.top) + 3 * window.left, part.row_bytes()), 0) << name;
      }
    }
  }
}

}  // namespace
}  // namespace nanomind
