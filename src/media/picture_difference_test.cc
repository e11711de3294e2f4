// SPDX-License-Identifier: Apache-2.0
// Differences of pictures whose difference is known from how they were drawn.
#include "media/picture_difference.h"

#include <gtest/gtest.h>

#include <random>

namespace nanomind {
namespace {

Image plain(Size size, Rgb color) {
  Image image(size);
  fill(image, color);
  return image;
}

TEST(PictureDifferenceTest, IsZeroForTheSameAndTheWholeScaleForBlackAndWhite) {
  const Thumbnail black = thumbnail(plain({64, 48}, {0, 0, 0})), white = thumbnail(plain({640, 48}, {255, 255, 255}));
  EXPECT_EQ(difference(black, black), 0);
  EXPECT_EQ(difference(black, white), 255);
  EXPECT_EQ(difference(white, black), 255);
  EXPECT_EQ(brightness(black), 0);
  EXPECT_EQ(brightness(white), 255);
}

// The weights of BT.601: 0.299, 0.587, 0.114.
TEST(PictureDifferenceTest, GrayIsLuma) {
  EXPECT_EQ(brightness(thumbnail(plain({32, 32}, {255, 0, 0}))), 76);
  EXPECT_EQ(brightness(thumbnail(plain({32, 32}, {0, 255, 0}))), 150);
  EXPECT_EQ(brightness(thumbnail(plain({32, 32}, {0, 0, 255}))), 29);
}

// A quarter of the picture that is 40 levels brighter: a mean of 10, but for what the edges blur.
TEST(PictureDifferenceTest, GrowsWithAreaAndContrast) {
  const Image before = plain({320, 240}, {100, 100, 100});
  Image after = before;
  for (int y = 0; y < 120; ++y)
    for (int x = 0; x < 3 * 160; ++x) after.row(y)[x] = 140;
  EXPECT_NEAR(difference(thumbnail(before), thumbnail(after)), 10, 0.5);
}

// Noise of +-8 levels in every sample, more than most cameras have indoors, stays below one level.
TEST(PictureDifferenceTest, NoiseNearlyVanishes) {
  std::mt19937 random(1);
  const auto noisy = [&] {
    Image image(Size{640, 480});
    for (uint8_t& sample : image.pixels) sample = static_cast<uint8_t>(120 + random() % 17);
    return thumbnail(image);
  };
  EXPECT_LT(difference(noisy(), noisy()), 1);
}

}  // namespace
}  // namespace nanomind
