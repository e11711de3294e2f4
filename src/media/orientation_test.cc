// SPDX-License-Identifier: Apache-2.0
// The eight ways to hold a camera, against pictures that Pillow turned (tools/golden/pictures.py).
#include "media/orientation.h"

#include <gtest/gtest.h>

#include <string>

#include "media/decode.h"
#include "media/test_pictures.h"

namespace nanomind {
namespace {

using namespace std::string_view_literals;

TEST(OrientationTest, PicturesOfAllEightAreUpright) {
  const Image expected = read_expected("arrow.ppm");
  for (int orientation = 1; orientation <= 8; ++orientation) {
    // Lossless formats exactly; in a JPEG edges ring a little, otherwise for each way to store it.
    for (const auto& [suffix, tolerance] : {std::pair(".png", 0), {".webp", 0}, {".jpg", 16}}) {
      const std::string name = "arrow" + std::to_string(orientation) + suffix;
      const auto image = decode_image(as_bytes(read_picture(name)));
      ASSERT_TRUE(image) << image.error().message;
      EXPECT_LE(max_difference(*image, expected), tolerance) << name;
    }
  }
}

// A LONG where a SHORT should be, as Pillow reads it too.
TEST(OrientationTest, TheTagMayBeWider) {
  std::string file = read_picture("arrow6.jpg");
  constexpr std::string_view kShort = "\1\x12\0\3\0\0\0\1\0\6\0\0"sv, kLong = "\1\x12\0\4\0\0\0\1\0\0\0\6"sv;
  const size_t at = file.find(kShort);
  ASSERT_NE(at, std::string::npos);
  file.replace(at, kShort.size(), kLong);
  const auto image = decode_image(as_bytes(file)), other = decode_image(as_bytes(read_picture("arrow6.jpg")));
  ASSERT_TRUE(image && other);
  EXPECT_EQ(*image, *other);
}

TEST(OrientationTest, TurnsPicturesLargerThanASquareOfTheLoop) {
  Image image({101, 67});
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 31 >> 3);
  const Image right = oriented(image, 6);
  ASSERT_EQ(right.size, (Size{67, 101}));
  for (int y = 0; y < 101; ++y) {
    for (int x = 0; x < 67; ++x) {
      for (int c = 0; c < 3; ++c) ASSERT_EQ(right.row(y)[3 * x + c], image.row(66 - x)[3 * y + c]);
    }
  }
  EXPECT_EQ(oriented(right, 8), image);
  for (const int self_inverse : {1, 2, 3, 4, 5, 7})
    EXPECT_EQ(oriented(oriented(image, self_inverse), self_inverse), image);
}

TEST(ExifTest, ReadsBothByteOrders) {
  EXPECT_EQ(exif_orientation(as_bytes("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"sv)), 6);
  EXPECT_EQ(exif_orientation(as_bytes("MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\x08\0\0\0\0\0\0"sv)), 8);
  EXPECT_EQ(exif_orientation(as_bytes("II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\6\0\0\0\0\0\0\0"sv)), 6);
  EXPECT_EQ(exif_orientation(as_bytes("MM\0*\0\0\0\x08\0\1\1\x12\0\4\0\0\0\1\0\0\0\x08\0\0\0\0"sv)), 8);
  EXPECT_EQ(exif_orientation(as_bytes("Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\3\0\0\0\0\0\0"sv)), 3);
}

TEST(ExifTest, NonsenseIsUpright) {
  for (const std::string_view bytes :
       {""sv, "Exif"sv, "II*\0"sv, "rubbish that is no TIFF header"sv,
        "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x09\0\0\0\0\0\0\0"sv,  // 9
        "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0\0\0\0\0"sv,    // 0
        "II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\6\0\1\0\0\0\0\0"sv,    // 65542
        "II*\0\x08\0\0\0\1\0\x12\1\2\0\1\0\0\0\6\0\0\0\0\0\0\0"sv,    // text
        "II*\0\xFF\xFF\xFF\x7F\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"sv}) {   // a directory far outside
    EXPECT_EQ(exif_orientation(as_bytes(bytes)), 1);
  }
}

}  // namespace
}  // namespace nanomind
