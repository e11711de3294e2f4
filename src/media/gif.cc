// SPDX-License-Identifier: Apache-2.0
// GIF through giflib: the first frame on its canvas, white where it is transparent or does not reach.
#include <gif_lib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "media/codecs.h"

namespace nanomind {
namespace {

struct GifReader {
  std::span<const std::byte> rest;
  GifFileType* file = nullptr;
  int transparent = NO_TRANSPARENT_COLOR;

  GifReader() = default;
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;
  ~GifReader() {
    int ignored = 0;
    if (file != nullptr) DGifCloseFile(file, &ignored);
  }
};

int read_bytes(GifFileType* file, GifByteType* target, int count) {
  auto& rest = static_cast<GifReader*>(file->UserData)->rest;
  const size_t taken = std::min(rest.size(), static_cast<size_t>(std::max(count, 0)));
  if (taken > 0) std::memcpy(target, rest.data(), taken);
  rest = rest.subspan(taken);
  return static_cast<int>(taken);
}

std::unexpected<Error> explain(const GifReader& reader, int error) {
  if (reader.rest.empty()) return damaged("GIF", kEndsTooEarly);
  const char* reason = GifErrorString(error);
  return damaged("GIF", reason != nullptr ? reason : "its blocks make no sense");
}

// An extension before the first frame, of which only the transparent colour matters.
bool read_extension(GifReader& reader) {
  int code = 0;
  GifByteType* block = nullptr;  // its length, then as many bytes
  if (DGifGetExtension(reader.file, &code, &block) == GIF_ERROR) return false;
  GraphicsControlBlock control;
  if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr &&
      DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
    reader.transparent = control.TransparentColor;
  }
  while (block != nullptr) {
    if (DGifGetExtensionNext(reader.file, &block) == GIF_ERROR) return false;
  }
  return true;
}

void paint_row(const std::vector<GifPixelType>& row, const ColorMapObject& colors, int transparent, uint8_t* target) {
  for (const GifPixelType index : row) {
    if (index != transparent) {
      const GifColorType color = index < colors.ColorCount ? colors.Colors[index] : GifColorType{};
      target[0] = color.Red;
      target[1] = color.Green;
      target[2] = color.Blue;
    }
    target += 3;
  }
}

Result<Decoded> read_frame(GifReader& reader, const ImageLimits& limits) {
  GifFileType* file = reader.file;
  if (DGifGetImageDesc(file) == GIF_ERROR) return explain(reader, file->Error);
  const GifImageDesc& frame = file->Image;
  const ColorMapObject* colors = frame.ColorMap != nullptr ? frame.ColorMap : file->SColorMap;
  if (colors == nullptr) return damaged("GIF", "it has no table of colours");
  if (frame.Left < 0 || frame.Top < 0 || frame.Width < 1 || frame.Height < 1) {
    return damaged("GIF", "its first frame has no pixels");
  }
  const Size canvas = TRY(check_size(std::max<int64_t>(file->SWidth, int64_t{frame.Left} + frame.Width),
                                     std::max<int64_t>(file->SHeight, int64_t{frame.Top} + frame.Height), limits));
  Decoded decoded{Image(canvas)};
  fill(decoded.image, {255, 255, 255});
  std::vector<GifPixelType> row(static_cast<size_t>(frame.Width));
  struct Pass {
    int first, step;
  };
  constexpr Pass kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  constexpr Pass kPlain[] = {{0, 1}};
  for (const Pass pass : frame.Interlace ? std::span<const Pass>(kInterlaced) : std::span<const Pass>(kPlain)) {
    for (int y = pass.first; y < frame.Height; y += pass.step) {
      if (DGifGetLine(file, row.data(), frame.Width) == GIF_ERROR) return explain(reader, file->Error);
      paint_row(row, *colors, reader.transparent,
                decoded.image.row(frame.Top + y) + 3 * static_cast<size_t>(frame.Left));
    }
  }
  return decoded;
}

}  // namespace

Result<Decoded> decode_gif(std::span<const std::byte> bytes, const ImageLimits& limits) {
  GifReader reader;
  reader.rest = bytes;
  int error = 0;
  reader.file = DGifOpen(&reader, read_bytes, &error);
  if (reader.file == nullptr) return explain(reader, error);
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(reader.file, &type) == GIF_ERROR) return explain(reader, reader.file->Error);
    switch (type) {
      case IMAGE_DESC_RECORD_TYPE: return read_frame(reader, limits);
      case TERMINATE_RECORD_TYPE: return damaged("GIF", "it holds no picture");
      case EXTENSION_RECORD_TYPE:
        if (!read_extension(reader)) return explain(reader, reader.file->Error);
        break;
      default: break;
    }
  }
}

}  // namespace nanomind
