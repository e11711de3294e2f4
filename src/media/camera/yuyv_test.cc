// SPDX-License-Identifier: Apache-2.0
// Raw frames against colours of ITU-R BT.601 (the table of colour bars, 8 bits, full saturation).
#include "media/camera/yuyv.h"

#include <gtest/gtest.h>

#include <array>

#include "media/decode.h"

namespace nanomind {
namespace {

struct Bar {
  uint8_t luma, blue, red;
  Rgb color;
};
constexpr Bar kBars[] = {{235, 128, 128, {255, 255, 255}}, {210, 16, 146, {255, 255, 0}},
                         {170, 166, 16, {0, 255, 255}},    {145, 54, 34, {0, 255, 0}},
                         {106, 202, 222, {255, 0, 255}},   {81, 90, 240, {255, 0, 0}},
                         {41, 240, 110, {0, 0, 255}},      {16, 128, 128, {0, 0, 0}}};

std::span<const std::byte> as_bytes(const std::vector<uint8_t>& values) { return std::as_bytes(std::span(values)); }

TEST(YuyvTest, HasTheColoursOfTheStandard) {
  for (const Bar& bar : kBars) {
    const Image image = yuyv_to_image(as_bytes({bar.luma, bar.blue, bar.luma, bar.red}), {2, 1}, 4);
    const std::array<uint8_t, 3> expected{bar.color.red, bar.color.green, bar.color.blue};
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(image.pixels[i], expected[i % 3], 2) << int{bar.luma};
  }
}

TEST(YuyvTest, EachPixelHasItsOwnLumaAndRowsHaveTheirStride) {
  // Two rows of three pixels, in rows of 10 bytes of which 8 are pixels; the last row lacks its padding.
  const std::vector<uint8_t> bytes{16,  128, 235, 128, 126, 128, 16, 128, 99, 99,  //
                                   235, 128, 16,  128, 235, 128, 16, 128};
  const Image image = yuyv_to_image(as_bytes(bytes), {3, 2}, 10);
  EXPECT_EQ(yuyv_bytes({3, 2}, 10), bytes.size());
  const std::array<uint8_t, 6> expected{0, 255, 128, 255, 0, 255};
  for (size_t pixel = 0; pixel < 6; ++pixel)
    for (size_t channel = 0; channel < 3; ++channel) EXPECT_EQ(image.pixels[3 * pixel + channel], expected[pixel]);
}

TEST(YuyvTest, ItsFileIsReadBackAsItIs) {
  Image image(Size{3, 2});
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(14 * i);
  const auto file = ppm_file(image);
  EXPECT_EQ(decode_image(file).value(), image);
}

}  // namespace
}  // namespace nanomind
