// SPDX-License-Identifier: Apache-2.0
// Sizes and places from the definitions: ceil(side * scale) and floor((canvas - scaled) / 2) inside; int(long * short
// edge / short) and a centre crop over.
#include "media/fit.h"

#include <gtest/gtest.h>

#include "media/test_pictures.h"

namespace nanomind {
namespace {

Image plain(Size size, uint8_t level) {
  Image image(size);
  std::fill(image.pixels.begin(), image.pixels.end(), level);
  return image;
}

void expect_place(const Placement& place, Size scaled, int left, int top) {
  EXPECT_EQ(place.scaled, scaled);
  EXPECT_EQ(place.left, left);
  EXPECT_EQ(place.top, top);
}

TEST(FitTest, PlacesInside) {
  expect_place(place_inside({220, 140}, {96, 96}), {96, 62}, 0, 17);  // 61.09 up; 17 above, 17 below
  expect_place(place_inside({140, 220}, {96, 96}), {62, 96}, 17, 0);
  expect_place(place_inside({96, 96}, {96, 96}), {96, 96}, 0, 0);
  expect_place(place_inside({1, 1}, {96, 96}), {96, 96}, 0, 0);
  expect_place(place_inside({1, 4096}, {96, 96}), {1, 96}, 47, 0);   // 47 left, 48 right
  expect_place(place_inside({27, 257}, {96, 96}), {11, 96}, 42, 0);  // 10.09 up
  expect_place(place_inside({3, 1}, {7, 7}), {7, 3}, 0, 2);          // 2.33 up
  expect_place(place_inside({49, 7}, {7, 7}), {7, 1}, 0, 3);         // exactly 1, which 7 * (1 / 7) must not exceed
}

TEST(FitTest, PlacesOver) {
  expect_place(place_over({640, 480}, {224, 224}), {298, 224}, -37, 0);  // 298.67 down
  expect_place(place_over({480, 640}, {224, 224}), {224, 298}, 0, -37);
  expect_place(place_over({32768, 1}, {448, 448}), {14680064, 448}, -7339808, 0);
}

TEST(FitTest, PadsWithTheBackground) {
  const Rgb background{122, 116, 104};
  const Image image = fit_inside(plain({4, 2}, 200), {7, 7}, Filter::bicubic, background);  // scaled 7 x 4, at row 1
  ASSERT_EQ(image.size, (Size{7, 7}));
  for (int y = 0; y < 7; ++y) {
    for (int x = 0; x < 7; ++x) {
      const uint8_t* pixel = image.row(y) + 3 * x;
      const Rgb expected = y >= 1 && y < 5 ? Rgb{200, 200, 200} : background;
      EXPECT_EQ((Rgb{pixel[0], pixel[1], pixel[2]}), expected) << x << ", " << y;
    }
  }
}

TEST(FitTest, AnyShapeGivesTheCanvas) {
  for (const Size size : {Size{1, 1}, {1, 4096}, {4096, 1}, {27, 27}, {27, 257}, {28, 28}, {13, 9999}, {32768, 1}}) {
    const Image image = plain(size, 50);
    EXPECT_EQ(fit_over(image, {96, 96}, Filter::bicubic), plain({96, 96}, 50));
    EXPECT_EQ(fit_inside(image, {96, 96}, Filter::bicubic, {50, 50, 50}), plain({96, 96}, 50));
  }
}

TEST(FitTest, CoversWithTheMiddle) {
  Image image = plain({30, 10}, 0);  // red only in the middle third, which is what a square shows
  for (int y = 0; y < 10; ++y) {
    for (int x = 10; x < 20; ++x) image.row(y)[3 * x] = 255;
  }
  const Image middle = fit_over(image, {10, 10}, Filter::bilinear);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(middle.pixels[3 * static_cast<size_t>(i)], 255);
}

}  // namespace
}  // namespace nanomind
