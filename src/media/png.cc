// SPDX-License-Identifier: Apache-2.0
// PNG through libpng: every colour type and depth to RGB, interlaced or not.
//
// libpng reports errors by longjmp. The two functions with a setjmp own nothing and call nothing that does; what they
// work on is a PngReader of their caller, whose destructor frees the library's memory.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "media/codecs.h"
#include "media/orientation.h"

namespace nanomind {
namespace {

// Chunks that say nothing about pixels, some of them compressed; passed over unread.
constexpr png_byte kPassedOver[] = "iCCP\0iTXt\0tEXt\0zTXt\0sPLT\0hIST\0bKGD\0gAMA\0cHRM";

struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;
  char reason[160] = "";

  PngReader() = default;
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void stop(png_structp png, png_const_charp message) {
  auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
  const std::string_view text(message);
  reader.reason[text.copy(reader.reason, sizeof reader.reason - 1)] = '\0';
  png_longjmp(png, 1);
}

void read_bytes(png_structp png, png_bytep target, size_t count) {
  auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader.rest.size()) png_error(png, kEndsTooEarly.data());
  std::memcpy(target, reader.rest.data(), count);
  reader.rest = reader.rest.subspan(count);
}

// Everything before the pixels. False with the reason in the reader, as for the next function.
bool read_header(PngReader& reader) {
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, stop, [](png_structp, png_const_charp) {});
  if (reader.png == nullptr) return false;
  png_structp png = reader.png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  reader.info = png_create_info_struct(png);
  if (reader.info == nullptr) return false;
  png_set_read_fn(png, &reader, read_bytes);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, kPassedOver, sizeof kPassedOver / 5);
  png_read_info(png, reader.info);
  png_set_expand(png);  // palettes and low depths to 8 bits, a transparent colour to alpha
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, reader.info);
  return true;
}

// All rows into `pixels` of [height, row_bytes], then what follows them.
bool read_rows(PngReader& reader, uint8_t* pixels, uint32_t height, size_t row_bytes, int passes) {
  png_structp png = reader.png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < height; ++y) png_read_row(png, pixels + y * row_bytes, nullptr);
  }
  png_read_end(png, reader.info);
  return true;
}

std::unexpected<Error> explain(const PngReader& reader) {
  return damaged("PNG", reader.reason[0] != '\0' ? reader.reason : "libpng does not start");
}

int orientation_of(PngReader& reader) {
  png_uint_32 count = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &count, &exif) == 0) return 1;
  return exif_orientation(std::as_bytes(std::span(exif, count)));
}

}  // namespace

Result<Decoded> decode_png(std::span<const std::byte> bytes, const ImageLimits& limits) {
  PngReader reader;
  reader.rest = bytes;
  if (!read_header(reader)) return explain(reader);
  const Size size = TRY(
      check_size(png_get_image_width(reader.png, reader.info), png_get_image_height(reader.png, reader.info), limits));
  const size_t channels = png_get_channels(reader.png, reader.info);
  const size_t row_bytes = channels * static_cast<size_t>(size.width);
  if ((channels != 3 && channels != 4) || png_get_rowbytes(reader.png, reader.info) != row_bytes) {
    return not_supported("PNG", "its colours are of no known type");
  }
  const bool interlaced = png_get_interlace_type(reader.png, reader.info) == PNG_INTERLACE_ADAM7;
  Decoded decoded;
  Image& image = decoded.image;
  image.size = size;
  image.pixels.resize(row_bytes * static_cast<size_t>(size.height));
  if (!read_rows(reader, image.pixels.data(), static_cast<uint32_t>(size.height), row_bytes,
                 interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1)) {
    return explain(reader);
  }
  if (channels == 4) {
    flatten(image.pixels.data(), image.pixels.data(), image.pixels.size() / 4);
    image.pixels.resize(image.row_bytes() * static_cast<size_t>(size.height));
  }
  decoded.orientation = orientation_of(reader);
  return decoded;
}

}  // namespace nanomind
