// SPDX-License-Identifier: Apache-2.0
// The fixtures of tests/data/pictures (made by tools/golden/pictures.py) for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "media/image.h"

namespace nanomind {

inline std::string read_picture(const std::string& name) {
  std::ifstream stream("tests/data/pictures/" + name, std::ios::binary);
  EXPECT_TRUE(stream) << name << " is missing; run from the root of the project";
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// An expected picture, read without the code under test: binary PPM exactly as the script writes it.
inline Image read_expected(const std::string& name) {
  const std::string file = read_picture(name);
  std::istringstream stream(file);
  std::string magic;
  Size size;
  int most = 0;
  stream >> magic >> size.width >> size.height >> most;
  Image image(size);
  const size_t at = static_cast<size_t>(stream.tellg()) + 1;
  EXPECT_EQ(magic, "P6");
  EXPECT_EQ(file.size(), at + image.pixels.size()) << name;
  if (file.size() == at + image.pixels.size()) std::memcpy(image.pixels.data(), file.data() + at, image.pixels.size());
  return image;
}

// The largest difference of a sample; 256 for pictures of different sizes.
inline int max_difference(const Image& a, const Image& b) {
  if (a.size != b.size) return 256;
  int most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) most = std::max(most, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return most;
}

}  // namespace nanomind
