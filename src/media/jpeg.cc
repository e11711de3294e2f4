// SPDX-License-Identifier: Apache-2.0
// JPEG through libjpeg-turbo, with its accurate transform and smooth upsampling, as Pillow decodes.
//
// libjpeg reports errors by longjmp. The two functions with a setjmp own nothing and call nothing that does; what they
// work on is a JpegReader of their caller, whose destructor frees the library's memory.
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

// clang-format off
#include <jpeglib.h>  // needs <cstdio> before
#include <jerror.h>   // needs jpeglib.h before
// clang-format on

#include "media/codecs.h"
#include "media/orientation.h"

namespace nanomind {
namespace {

// Progressive pictures have about ten scans. Thousands of empty ones would fit into a small file and take minutes.
constexpr int kScansMax = 100;

struct JpegReader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump;
  char reason[JMSG_LENGTH_MAX] = "";

  JpegReader() = default;
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info); }
};

template <typename Info>
JpegReader& reader_of(Info* info) {
  return *static_cast<JpegReader*>(info->client_data);
}

[[noreturn]] void stop(j_common_ptr info) {
  JpegReader& reader = reader_of(info);
  reader.errors.format_message(info, reader.reason);
  std::longjmp(reader.jump, 1);
}

[[noreturn]] void stop_because(JpegReader& reader, std::string_view reason) {
  reader.reason[reason.copy(reader.reason, sizeof reader.reason - 1)] = '\0';
  std::longjmp(reader.jump, 1);
}

// Of the library's warnings these mean that pixels are missing or wrong; it would go on with gray ones.
void warn(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: stop(info);
    default: return;
  }
}

void count_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kScansMax) {
    stop_because(reader_of(info), "it has too many scans");
  }
}

boolean no_more_bytes(j_decompress_ptr info) { stop_because(reader_of(info), kEndsTooEarly); }

void skip_bytes(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) stop_because(reader_of(info), kEndsTooEarly);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

// False with the reason in the reader, as for the next function.
bool read_header(JpegReader& reader, std::span<const std::byte> bytes) {
  jpeg_decompress_struct& info = reader.info;
  info.err = jpeg_std_error(&reader.errors);
  info.client_data = &reader;
  reader.errors.error_exit = stop;
  reader.errors.emit_message = warn;
  reader.errors.output_message = [](j_common_ptr) {};
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&info);
  reader.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  reader.source.bytes_in_buffer = bytes.size();
  reader.source.init_source = [](j_decompress_ptr) {};
  reader.source.fill_input_buffer = no_more_bytes;
  reader.source.skip_input_data = skip_bytes;
  reader.source.resync_to_restart = jpeg_resync_to_restart;
  reader.source.term_source = [](j_decompress_ptr) {};
  info.src = &reader.source;
  reader.progress.progress_monitor = count_scans;
  info.progress = &reader.progress;
  jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&info, TRUE);
  return true;
}

uint8_t times(uint8_t a, uint8_t b) { return static_cast<uint8_t>((a * b + 127) / 255); }

// Inks stored inverted (255 = none), to RGB as Pillow converts them.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const uint8_t paper = cmyk[3];
    for (int c = 0; c < 3; ++c)
      rgb[c] = static_cast<uint8_t>(paper - times(static_cast<uint8_t>(255 - cmyk[c]), paper));
  }
}

// All rows into `pixels`; `scratch` has room for one row of four channels where there are as many.
bool read_rows(JpegReader& reader, uint8_t* pixels, uint8_t* scratch) {
  jpeg_decompress_struct& info = reader.info;
  if (setjmp(reader.jump) != 0) return false;
  info.out_color_space = scratch != nullptr ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t row_bytes = 3 * static_cast<size_t>(info.output_width);
  while (info.output_scanline < info.output_height) {
    uint8_t* target = pixels + info.output_scanline * row_bytes;
    uint8_t* row = scratch != nullptr ? scratch : target;
    jpeg_read_scanlines(&info, &row, 1);
    if (scratch != nullptr) cmyk_to_rgb(scratch, target, info.output_width);
  }
  jpeg_finish_decompress(&info);
  return true;
}

std::unexpected<Error> explain(const JpegReader& reader) {
  switch (reader.errors.msg_code) {
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_SOF_UNSUPPORTED: return not_supported("JPEG", reader.reason);
    default: return damaged("JPEG", reader.reason);
  }
}

int orientation_of(const jpeg_decompress_struct& info) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (const jpeg_marker_struct* marker = info.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->marker != JPEG_APP0 + 1 || marker->data_length < kExif.size()) continue;
    if (std::memcmp(marker->data, kExif.data(), kExif.size()) != 0) continue;
    return exif_orientation(std::as_bytes(std::span(marker->data, marker->data_length)));
  }
  return 1;
}

}  // namespace

Result<Decoded> decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits) {
  JpegReader reader;
  if (!read_header(reader, bytes)) return explain(reader);
  const Size size = TRY(check_size(reader.info.image_width, reader.info.image_height, limits));
  Decoded decoded{Image(size), orientation_of(reader.info)};
  std::vector<uint8_t> scratch;
  if (reader.info.jpeg_color_space == JCS_CMYK || reader.info.jpeg_color_space == JCS_YCCK) {
    scratch.resize(4 * static_cast<size_t>(size.width));
  }
  if (!read_rows(reader, decoded.image.pixels.data(), scratch.empty() ? nullptr : scratch.data()))
    return explain(reader);
  return decoded;
}

}  // namespace nanomind
