// SPDX-License-Identifier: Apache-2.0
#include "media/image_format.h"

#include <gtest/gtest.h>

#include "media/decode.h"
#include "media/test_pictures.h"

namespace nanomind {
namespace {

using namespace std::string_view_literals;

struct Sample {
  std::string_view bytes;
  ImageFormat format;
};

// The first bytes as the formats' specifications have them.
constexpr Sample kOthers[] = {
    {"\0\0\0\x18"
     "ftypheic\0\0\0\0mif1heic"sv,
     ImageFormat::heic},
    {"\0\0\0\x0C"
     "ftypheic"sv,
     ImageFormat::heic},
    {"\0\0\0\x18"
     "ftypmif1\0\0\0\0mif1heic"sv,
     ImageFormat::heic},
    {"\0\0\0\x1C"
     "ftypavif\0\0\0\0avifmif1"sv,
     ImageFormat::avif},
    {"\0\0\0\x18"
     "ftypmif1\0\0\0\0mif1avif"sv,
     ImageFormat::avif},
    {"II*\0\x08\0\0\0"sv, ImageFormat::tiff},
    {"MM\0*\0\0\0\x08"sv, ImageFormat::tiff},
    {"<svg xmlns='http://www.w3.org/2000/svg'/>"sv, ImageFormat::svg},
    {"\xEF\xBB\xBF<?xml version='1.0'?>\n<!-- drawn -->\n<svg/>"sv, ImageFormat::svg},
    {"<!DOCTYPE html><html><svg></svg></html>"sv, ImageFormat::html},
    {"\xFF\x0A\xFA"sv, ImageFormat::jpeg_xl},
    {"\0\0\0\x0CjP  \r\n\x87\n"sv, ImageFormat::jpeg_2000},
    {"\0\0\1\0\1\0"sv, ImageFormat::icon},
    {"8BPS\0\1"sv, ImageFormat::photoshop},
    {"%PDF-1.7"sv, ImageFormat::pdf},
};

TEST(SniffTest, TellsFormatsByContent) {
  for (const Sample& sample : kOthers)
    EXPECT_EQ(sniff(as_bytes(sample.bytes)), sample.format) << format_name(sample.format);
  EXPECT_EQ(sniff(as_bytes(read_picture("420.jpg"))), ImageFormat::jpeg);
  EXPECT_EQ(sniff(as_bytes(read_picture("rgb8.png"))), ImageFormat::png);
  EXPECT_EQ(sniff(as_bytes(read_picture("lossy.webp"))), ImageFormat::webp);
  EXPECT_EQ(sniff(as_bytes(read_picture("plain.gif"))), ImageFormat::gif);
  EXPECT_EQ(sniff(as_bytes(read_picture("rgb.bmp"))), ImageFormat::bmp);
  EXPECT_EQ(sniff(as_bytes(read_picture("bits.pbm"))), ImageFormat::pnm);
}

TEST(SniffTest, ShortOrForeignBytesAreUnknown) {
  for (const std::string_view bytes :
       {""sv, "P"sv, "P7\n"sv, "P6x"sv, "\xFF\xD8"sv, "RIFF\0\0\0\0WAVEfmt "sv, "hello"sv, "<"sv,
        "\0\0\0\x18"
        "ftypisom\0\0\0\0isomavc1"sv,
        "<p>no picture</p>"sv}) {
    EXPECT_EQ(sniff(as_bytes(bytes)), ImageFormat::unknown) << bytes;
  }
}

TEST(SniffTest, RefusalsNameTheFormatAndWhatToDo) {
  for (const Sample& sample : kOthers) {
    const auto image = decode_image(as_bytes(sample.bytes));
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().code, ErrorCode::unsupported);
    EXPECT_NE(image.error().message.find(format_name(sample.format)), std::string::npos) << image.error().message;
  }
  const auto text = decode_image(as_bytes("hello, world"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message,
            "This is not a picture of a known kind; JPEG, PNG, WebP, GIF, BMP and PPM pictures are read.");
}

}  // namespace
}  // namespace nanomind
