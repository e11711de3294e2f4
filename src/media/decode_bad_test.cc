// SPDX-License-Identifier: Apache-2.0
// Pictures that are too large, cut off or damaged: an error that says so, soon, and never more.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "media/decode.h"
#include "media/test_pictures.h"

namespace nanomind {
namespace {

using namespace std::string_literals;

std::string big_endian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> 8 * i);
  return text;
}

std::string little_endian(uint32_t value, int bytes) {
  std::string text = big_endian(value, bytes);
  std::ranges::reverse(text);
  return text;
}

constexpr uint32_t kHuge = 60'000;

// A real file whose header tells of 60,000 x 60,000 pixels, with 40 kB of anything behind.
std::string huge(const std::string& name, size_t at, const std::string& size) {
  std::string file = read_picture(name);
  file.replace(at, size.size(), size);
  return file.append(40'000, 'x');
}

std::string huge_jpeg() {
  const size_t frame = read_picture("420.jpg").find("\xFF\xC0"s);
  return huge("420.jpg", frame + 5, big_endian(kHuge, 2) + big_endian(kHuge, 2));
}

// The checksum of IHDR is part of it, computed by zlib.
std::string huge_png() {
  return huge("rgb8.png", 16, big_endian(kHuge, 4) + big_endian(kHuge, 4) + "\x08\x02\0\0\0"s + "\x0F\xB0\xE2\x15"s);
}

std::string huge_gif() {
  const std::string side = little_endian(kHuge, 2);
  return huge("plain.gif", 6, side + side);
}

std::string huge_bmp() { return huge("rgb.bmp", 18, little_endian(kHuge, 4) + little_endian(kHuge, 4)); }

// An extended header with the flag of an animation; sides are stored less one.
std::string huge_webp() {
  const std::string side = little_endian(kHuge - 1, 3);
  const std::string extended = "VP8X" + little_endian(10, 4) + "\2\0\0\0"s + side + side;
  const std::string animation = "ANIM" + little_endian(6, 4) + std::string(6, '\0');
  const std::string frame = "ANMF" + little_endian(16 + 1000, 4) + std::string(1016, '\0');
  const std::string body = "WEBP" + extended + animation + frame;
  return "RIFF" + little_endian(static_cast<uint32_t>(body.size()), 4) + body;
}

TEST(DecodeLimitsTest, HugePicturesAreRefusedByTheirHeaders) {
  for (const std::string& file :
       {huge_jpeg(), huge_png(), huge_gif(), huge_bmp(), huge_webp(), "P6 60000 60000 255\n"s}) {
    const auto start = std::chrono::steady_clock::now();
    const auto image = decode_image(as_bytes(file));
    const auto took = std::chrono::steady_clock::now() - start;
    ASSERT_FALSE(image);
    EXPECT_EQ(
        image.error().message,
        "The picture is 60000 x 60000 pixels; at most 32768 on a side and 64000000 in all are read. Make it smaller.");
    EXPECT_EQ(image.error().code, ErrorCode::invalid_argument);
    EXPECT_LT(took, std::chrono::milliseconds(100));  // decoding would take many seconds and 10 GB
  }
}

TEST(DecodeLimitsTest, EachLimitCounts) {
  const std::string file = read_picture("rgb8.png");  // 29 x 18
  EXPECT_TRUE(decode_image(as_bytes(file), {.bytes = file.size(), .pixels = 29 * 18, .side = 29}));
  EXPECT_FALSE(decode_image(as_bytes(file), {.pixels = 29 * 18 - 1}));
  EXPECT_FALSE(decode_image(as_bytes(file), {.side = 28}));
  const auto bytes = decode_image(as_bytes(file), {.bytes = file.size() - 1});
  ASSERT_FALSE(bytes);
  EXPECT_NE(bytes.error().message.find("bytes; at most"), std::string::npos) << bytes.error().message;
}

TEST(DecodeBadTest, EmptyInputSaysSo) {
  const auto image = decode_image({});
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().message, "The picture is empty: it has 0 bytes. Send it again.");
}

constexpr const char* kFiles[] = {"420.jpg",
                                  "progressive.jpg",
                                  "arithmetic.jpg",
                                  "restart.jpg",
                                  "gray.jpg",
                                  "cmyk.jpg",
                                  "arrow6.jpg",
                                  "rgb8.png",
                                  "rgba16.png",
                                  "rgb8-interlaced.png",
                                  "palette4-alpha.png",
                                  "arrow6.png",
                                  "lossless.webp",
                                  "lossy.webp",
                                  "animated.webp",
                                  "arrow6.webp",
                                  "plain.gif",
                                  "interlaced.gif",
                                  "rgb.bmp",
                                  "bits.bmp",
                                  "bits.pbm",
                                  "scene.ppm"};

// A GIF's first frame is complete before the last byte, which ends the whole file.
size_t needed_bytes(const std::string& name, const std::string& file) {
  return file.size() - (name.ends_with(".gif") ? 1 : 0);
}

TEST(DecodeBadTest, CutOffAnywhereIsAnError) {
  for (const std::string name : kFiles) {
    const std::string file = read_picture(name);
    for (size_t bytes = 0; bytes < needed_bytes(name, file); ++bytes) {
      // A copy of just that size, so that a read beyond it is found by the address sanitizer.
      const std::vector<std::byte> part(as_bytes(file).begin(), as_bytes(file).begin() + static_cast<ptrdiff_t>(bytes));
      const auto image = decode_image(part);
      ASSERT_FALSE(image) << name << " cut to " << bytes;
      ASSERT_TRUE(image.error().message.ends_with('.')) << image.error().message;
    }
  }
}

TEST(DecodeBadTest, HalfAFileIsCalledDamaged) {
  for (const std::string name : kFiles) {
    const std::string file = read_picture(name);
    const auto image = decode_image(as_bytes(file).first(file.size() / 2));
    ASSERT_FALSE(image) << name;
    EXPECT_EQ(image.error().code, ErrorCode::corrupt) << name;
    EXPECT_NE(image.error().message.find("it ends too early"), std::string::npos)
        << name << ": " << image.error().message;
  }
}

TEST(DecodeBadTest, DamagedBytesGiveAPictureOrAnError) {
  std::mt19937 random(1);
  for (const std::string name : kFiles) {
    const std::string whole = read_picture(name);
    for (int round = 0; round < 200; ++round) {
      std::string file = whole;
      for (int i = 0; i < 3; ++i) file[random() % file.size()] = static_cast<char>(random());
      const auto image = decode_image(as_bytes(file), {.pixels = 1'000'000});
      if (image) {
        EXPECT_EQ(image->pixels.size(), image->row_bytes() * static_cast<size_t>(image->size.height));
      } else {
        EXPECT_FALSE(image.error().message.empty());
      }
    }
  }
}

TEST(DecodeBadTest, ManyScansAreRefused) {
  const std::string file = read_picture("progressive.jpg");
  const size_t scan = file.find("\xFF\xDA"s), next = file.find("\xFF\xC4"s, scan);
  ASSERT_NE(next, std::string::npos);
  std::string repeated = file.substr(0, next);
  while (repeated.size() < 2'000'000) repeated.append(file, scan, next - scan);
  repeated.append(file, next);
  const auto image = decode_image(as_bytes(repeated));
  ASSERT_FALSE(image);
  EXPECT_NE(image.error().message.find("too many scans"), std::string::npos) << image.error().message;
}

TEST(DecodeBadTest, UnsupportedModesSayWhy) {
  std::string twelve_bits = read_picture("420.jpg");
  twelve_bits[twelve_bits.find("\xFF\xC0"s) + 4] = 12;
  std::string wrapped = read_picture("rgb.bmp");
  wrapped[30] = 5;  // a PNG inside
  for (const std::string& file : {twelve_bits, wrapped}) {
    const auto image = decode_image(as_bytes(file));
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().code, ErrorCode::unsupported) << image.error().message;
  }
}

}  // namespace
}  // namespace nanomind
