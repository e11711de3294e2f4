// SPDX-License-Identifier: Apache-2.0
// What each kind of picture shows, against Pillow or, for PNG, against the definition; see tools/golden/pictures.py.
#include "media/decode.h"

#include <gtest/gtest.h>

#include <string>

#include "media/test_pictures.h"

namespace nanomind {
namespace {

struct Fixture {
  std::string name;
  std::string expected;  // a PPM
  int tolerance = 0;     // levels per sample
};

void PrintTo(const Fixture& fixture, std::ostream* stream) { *stream << fixture.name; }

class DecodeTest : public testing::TestWithParam<Fixture> {};

TEST_P(DecodeTest, ShowsWhatIsExpected) {
  const auto& [name, expected, tolerance] = GetParam();
  const std::string file = read_picture(name);
  const auto image = decode_image(as_bytes(file));
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_LE(max_difference(*image, read_expected(expected)), tolerance);
}

// The versions of libjpeg-turbo and libwebp that the expected pictures come from may round otherwise: one level.
INSTANTIATE_TEST_SUITE_P(Jpeg, DecodeTest,
                         testing::Values(Fixture{"444.jpg", "444.ppm", 1}, Fixture{"420.jpg", "420.ppm", 1},
                                         Fixture{"422.jpg", "422.ppm", 1}, Fixture{"progressive.jpg", "420.ppm", 1},
                                         Fixture{"arithmetic.jpg", "420.ppm", 1}, Fixture{"restart.jpg", "420.ppm", 1},
                                         Fixture{"gray.jpg", "gray.ppm", 1}, Fixture{"cmyk.jpg", "cmyk.ppm", 1},
                                         Fixture{"cmyk-no-adobe.jpg", "cmyk.ppm", 1},
                                         Fixture{"ycck.jpg", "ycck.ppm", 1}));

INSTANTIATE_TEST_SUITE_P(
    Png, DecodeTest,
    testing::Values(Fixture{"gray1.png", "gray1.ppm"}, Fixture{"gray2.png", "gray2.ppm"},
                    Fixture{"gray4.png", "gray4.ppm"}, Fixture{"gray8.png", "gray8.ppm"},
                    Fixture{"gray16.png", "gray8.ppm"}, Fixture{"rgb8.png", "scene.ppm"},
                    Fixture{"rgb16.png", "scene.ppm"}, Fixture{"rgb8-interlaced.png", "scene.ppm"},
                    Fixture{"rgba8.png", "rgba.ppm"}, Fixture{"rgba8-interlaced.png", "rgba.ppm"},
                    Fixture{"rgba16.png", "rgba.ppm"}, Fixture{"gray-alpha8.png", "gray-alpha.ppm"},
                    Fixture{"gray-alpha16.png", "gray-alpha.ppm"}, Fixture{"rgb8-key.png", "rgb8-key.ppm"},
                    Fixture{"gray4-key.png", "gray4-key.ppm"}, Fixture{"palette1.png", "palette1.ppm"},
                    Fixture{"palette2.png", "palette2.ppm"}, Fixture{"palette4.png", "palette4.ppm"},
                    Fixture{"palette4-interlaced.png", "palette4.ppm"}, Fixture{"palette8.png", "palette8.ppm"},
                    Fixture{"palette4-alpha.png", "palette4-alpha.ppm"}));

INSTANTIATE_TEST_SUITE_P(Others, DecodeTest,
                         testing::Values(Fixture{"lossless.webp", "scene.ppm"}, Fixture{"lossy.webp", "lossy.ppm", 1},
                                         Fixture{"rgba.webp", "rgba.ppm"}, Fixture{"animated.webp", "scene.ppm"},
                                         Fixture{"plain.gif", "gif.ppm"}, Fixture{"interlaced.gif", "gif.ppm"},
                                         Fixture{"animated.gif", "gif.ppm"},
                                         Fixture{"transparent.gif", "transparent.ppm"}, Fixture{"rgb.bmp", "scene.ppm"},
                                         Fixture{"palette.bmp", "palette-bmp.ppm"}, Fixture{"bits.bmp", "bits.ppm"},
                                         Fixture{"bits.pbm", "bits.ppm"}, Fixture{"scene.ppm", "scene.ppm"}));

Image decode(std::string_view file) {
  auto image = decode_image(as_bytes(file));
  EXPECT_TRUE(image) << image.error().message;
  return image ? *image : Image();
}

using Pixels = std::vector<uint8_t>;

TEST(DecodePnmTest, ReadsTextWithCommentsAndScalesSamples) {
  EXPECT_EQ(decode("P3\n# two pixels\n2 1 # wide\n3\n0 1 2  3 3 0\n").pixels, (Pixels{0, 85, 170, 255, 255, 0}));
  EXPECT_EQ(decode("P2 2 1 255 7 200").pixels, (Pixels{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(decode("P1\n3 1\n101").pixels, (Pixels{0, 0, 0, 255, 255, 255, 0, 0, 0}));
}

TEST(DecodePnmTest, ReadsSamplesOfSixteenBits) {
  using namespace std::string_view_literals;
  EXPECT_EQ(decode("P5 2 1 65535\n\x80\x00\xFF\xFF"sv).pixels, (Pixels{128, 128, 128, 255, 255, 255}));
}

void put(std::string& file, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> 8 * i);
}

// A bitmap of 2 x 2 pixels with a header of 40 bytes and what follows it.
std::string bmp(int height, int bits, uint32_t compression, std::string_view masks, std::string_view rows) {
  std::string file = "BM";
  put(file, static_cast<uint32_t>(54 + masks.size() + rows.size()), 4);
  put(file, 0, 4);
  put(file, static_cast<uint32_t>(54 + masks.size()), 4);
  put(file, 40, 4);
  put(file, 2, 4);
  put(file, static_cast<uint32_t>(height), 4);
  put(file, 1, 2);
  put(file, static_cast<uint32_t>(bits), 2);
  put(file, compression, 4);
  file.append(20, '\0');
  return file.append(masks).append(rows);
}

TEST(DecodeBmpTest, ReadsRowsFromAbove) {
  const std::string rows("\1\2\3\4\5\6\0\0\7\10\11\12\13\14\0\0", 16);
  const Pixels above{3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10};
  const Pixels below{9, 8, 7, 12, 11, 10, 3, 2, 1, 6, 5, 4};
  EXPECT_EQ(decode(bmp(-2, 24, 0, "", rows)).pixels, above);
  EXPECT_EQ(decode(bmp(2, 24, 0, "", rows)).pixels, below);
}

TEST(DecodeBmpTest, ReadsSixteenBitsWithMasks) {
  std::string masks, rows;
  for (const uint32_t mask : {0xF800u, 0x07E0u, 0x001Fu}) put(masks, mask, 4);
  for (const uint32_t pixel : {0xF800u, 0x07E0u, 0x001Fu, 0x8410u}) put(rows, pixel, 2);
  EXPECT_EQ(decode(bmp(-2, 16, 3, masks, rows)).pixels, (Pixels{255, 0, 0, 0, 255, 0, 0, 0, 255, 131, 129, 131}));
  // Without masks five bits each, the highest bit unused.
  EXPECT_EQ(decode(bmp(-2, 16, 0, "", rows)).pixels, (Pixels{246, 0, 0, 8, 255, 0, 0, 0, 255, 8, 0, 131}));
}

// A bitmap of 2 x 2 pixels with a palette of 16 grays, 17 apart.
std::string coded_bmp(int bits, uint32_t compression, std::string_view runs) {
  std::string palette;
  for (uint32_t i = 0; i < 16; ++i) put(palette, i * 0x111111, 4);
  std::string file = bmp(2, bits, compression, palette, runs);
  file[46] = 16;  // colours
  return file;
}

TEST(DecodeBmpTest, ReadsRuns) {
  using namespace std::string_view_literals;
  const auto grays = [](const Image& image) {
    Pixels result;
    for (size_t i = 0; i < image.pixels.size(); i += 3) result.push_back(image.pixels[i] / 17);
    return result;
  };
  // A run of two 5s below; above a step over one pixel and a run of one 7.
  EXPECT_EQ(grays(decode(coded_bmp(8, 1, "\2\5\0\0\0\2\1\0\1\7\0\1"sv))), (Pixels{0, 7, 5, 5}));
  // Two indices of 4 bits each in turn.
  EXPECT_EQ(grays(decode(coded_bmp(4, 2, "\2\x49\0\0\2\x31\0\1"sv))), (Pixels{3, 1, 4, 9}));
}

TEST(DecodeBmpTest, RefusesRunsThatLeaveThePicture) {
  using namespace std::string_view_literals;
  for (const std::string_view runs : {"\3\5\0\1"sv, "\0\3\1\2\3\0\0\1"sv, "\0\2\0\2\1\1\0\1"sv, "\0\2\2\0\1\1\0\1"sv,
                                      "\2\5"sv, "\2"sv, "\0\2\1"sv, "\0\3\1\2"sv}) {
    const auto image = decode_image(as_bytes(coded_bmp(8, 1, runs)));
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().code, ErrorCode::corrupt);
  }
}

TEST(DecodeBmpTest, PutsAlphaBeforeWhite) {
  std::string masks, rows;
  for (const uint32_t mask : {0x00FF0000u, 0x0000FF00u, 0x000000FFu, 0xFF000000u}) put(masks, mask, 4);
  for (const uint32_t pixel : {0xFF102030u, 0x00102030u, 0x80000000u, 0xFFFFFFFFu}) put(rows, pixel, 4);
  EXPECT_EQ(decode(bmp(-2, 32, 6, masks, rows)).pixels,
            (Pixels{16, 32, 48, 255, 255, 255, 127, 127, 127, 255, 255, 255}));
}

TEST(DecodeBmpTest, IgnoresTheFourthByteWithoutMasks) {
  std::string rows;
  for (const uint32_t pixel : {0x00102030u, 0xFF102030u, 0x00000001u, 0u}) put(rows, pixel, 4);
  EXPECT_EQ(decode(bmp(-2, 32, 0, "", rows)).pixels, (Pixels{16, 32, 48, 16, 32, 48, 0, 0, 1, 0, 0, 0}));
}

TEST(DecodeGifTest, PaintsAFrameSmallerThanItsCanvas) {
  // A canvas of 3 x 2, two colours (red, blue), one pixel of colour 1 at (1, 1); codes of 3 bits: clear, 1, end.
  using namespace std::string_view_literals;
  constexpr std::string_view kFile =
      "GIF89a\3\0\2\0\x80\0\0\xFF\0\0\0\0\xFF"
      ",\1\0\1\0\1\0\1\0\0\2\2\x4C\1\0;"sv;
  Pixels expected(18, 255);
  expected[12] = expected[13] = 0;
  EXPECT_EQ(decode(kFile).pixels, expected);
}

TEST(DecodeBmpTest, CopiesIndicesOfAWiderBitmap) {
  using namespace std::string_view_literals;
  std::string file = coded_bmp(4, 2, "\0\5\x12\x34\x50\0\0\0\0\3\x67\x80\0\1"sv);  // five, padded to four bytes; three
  file[18] = 5;                                                                    // pixels wide
  const Image image = decode(file);
  const Pixels expected{6, 7, 8, 0, 0, 1, 2, 3, 4, 5};
  ASSERT_EQ(image.pixels.size(), 30u);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(image.pixels[3 * i], expected[i] * 17) << i;
}

TEST(DecodeFileTest, IgnoresWhatFollowsThePicture) {
  // Phones append films and data of their own.
  for (const auto& [name, expected] : {std::pair("420.jpg", "420.ppm"),
                                       {"rgb8.png", "scene.ppm"},
                                       {"lossless.webp", "scene.ppm"},
                                       {"plain.gif", "gif.ppm"},
                                       {"rgb.bmp", "scene.ppm"},
                                       {"scene.ppm", "scene.ppm"}}) {
    EXPECT_LE(max_difference(decode(read_picture(name) + std::string(1000, 'x')), read_expected(expected)), 1) << name;
  }
}

TEST(DecodeFileTest, KeepsOnePixelAndExtremeShapes) {
  for (const char* head : {"P2 1 1 255", "P2 1 4096 255", "P2 4096 1 255", "P2 13 9999 255"}) {
    std::string file(head);
    for (int i = 0; i < 13 * 9999; ++i) file += " 9";
    const Image image = decode(file);
    EXPECT_EQ(image.pixels, Pixels(image.pixels.size(), 9)) << head;
  }
}

}  // namespace
}  // namespace nanomind
