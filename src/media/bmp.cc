// SPDX-License-Identifier: Apache-2.0
// Windows and OS/2 bitmaps: palettes of 1, 4 and 8 bits, plain or run-length coded, 16, 24 and 32 bits with any masks,
// from below or from above.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "media/codecs.h"

namespace nanomind {
namespace {

constexpr std::string_view kFormat = "BMP";
constexpr size_t kFileHeaderBytes = 14;
constexpr size_t kCoreHeaderBytes = 12;  // of OS/2, with 16-bit sizes and palettes of three bytes
constexpr size_t kInfoHeaderBytes = 40;

enum Compression : uint32_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kMasks = 3, kJpeg = 4, kPng = 5, kAlphaMasks = 6 };

uint32_t read16(const uint8_t* p) { return p[0] | static_cast<uint32_t>(p[1]) << 8; }
uint32_t read32(const uint8_t* p) { return read16(p) | read16(p + 2) << 16; }

// One colour within a pixel of 16 or 32 bits.
struct Channel {
  uint32_t mask = 0;

  // To 8 bits, rounded down as Pillow does.
  uint8_t of(uint32_t pixel) const {
    if (mask == 0) return 0;
    const int shift = std::countr_zero(mask);
    const uint64_t most = mask >> shift;
    return static_cast<uint8_t>(static_cast<uint64_t>((pixel & mask) >> shift) * 255 / most);
  }
};

struct Layout {
  Size size;
  bool from_above = false;
  uint32_t bits = 0;  // of a pixel
  uint32_t compression = kPlain;
  size_t row_bytes = 0;
  size_t pixels_at = 0;  // offset in the file
  Channel red, green, blue, alpha;
  std::vector<Rgb> palette;  // 256 entries where bits <= 8
};

// The masks of 16 and 32 bits: in the header or just after it, else the usual ones.
Result<void> read_masks(std::span<const uint8_t> file, size_t header_bytes, uint32_t compression, Layout& layout) {
  if (compression != kMasks && compression != kAlphaMasks) {
    layout.red.mask = layout.bits == 16 ? 0x7C00 : 0xFF0000;
    layout.green.mask = layout.bits == 16 ? 0x03E0 : 0x00FF00;
    layout.blue.mask = layout.bits == 16 ? 0x001F : 0x0000FF;
    return {};
  }
  const bool has_alpha = compression == kAlphaMasks || header_bytes >= 56;
  const size_t at = kFileHeaderBytes + kInfoHeaderBytes;
  if (at + (has_alpha ? 16 : 12) > file.size()) return damaged(kFormat, kEndsTooEarly);
  layout.red.mask = read32(&file[at]);
  layout.green.mask = read32(&file[at + 4]);
  layout.blue.mask = read32(&file[at + 8]);
  if (has_alpha) layout.alpha.mask = read32(&file[at + 12]);
  return {};
}

Result<void> read_palette(std::span<const uint8_t> file, size_t header_bytes, uint32_t colors, Layout& layout) {
  const size_t entry_bytes = header_bytes == kCoreHeaderBytes ? 3 : 4;
  const size_t at = kFileHeaderBytes + header_bytes;
  const size_t count = std::min<size_t>(colors == 0 ? 1u << layout.bits : colors, 256);
  if (at + count * entry_bytes > file.size()) return damaged(kFormat, kEndsTooEarly);
  layout.palette.resize(256);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* entry = &file[at + i * entry_bytes];
    layout.palette[i] = {entry[2], entry[1], entry[0]};
  }
  return {};
}

Result<Layout> read_layout(std::span<const uint8_t> file, const ImageLimits& limits) {
  if (file.size() < kFileHeaderBytes + kCoreHeaderBytes) return damaged(kFormat, kEndsTooEarly);
  const size_t header_bytes = read32(&file[14]);
  const bool core = header_bytes == kCoreHeaderBytes;
  if (!core && (header_bytes < kInfoHeaderBytes || header_bytes > 124)) {
    return not_supported(kFormat, "its header is of an unknown version");
  }
  if (file.size() < kFileHeaderBytes + header_bytes) return damaged(kFormat, kEndsTooEarly);
  const int64_t width = core ? static_cast<int64_t>(read16(&file[18])) : static_cast<int32_t>(read32(&file[18]));
  const int64_t height = core ? static_cast<int64_t>(read16(&file[20])) : static_cast<int32_t>(read32(&file[22]));
  Layout layout;
  layout.size = TRY(check_size(width, height < 0 ? -height : height, limits));
  layout.from_above = height < 0;
  layout.bits = read16(&file[core ? 24 : 28]);
  const uint32_t compression = core ? uint32_t{kPlain} : read32(&file[30]);
  const uint32_t colors = core ? 0 : read32(&file[46]);
  layout.compression = compression;
  layout.pixels_at = read32(&file[10]);
  layout.row_bytes = (static_cast<size_t>(layout.size.width) * layout.bits + 31) / 32 * 4;
  if (compression == kJpeg || compression == kPng) return not_supported(kFormat, "it wraps another picture");
  switch (layout.bits) {
    case 1:
    case 4:
    case 8: TRY(read_palette(file, header_bytes, colors, layout)); break;
    case 16:
    case 32: TRY(read_masks(file, header_bytes, compression, layout)); break;
    case 24: break;
    default: return not_supported(kFormat, "its pixels have an unknown number of bits");
  }
  if (layout.pixels_at > file.size()) return damaged(kFormat, kEndsTooEarly);
  if (compression == kRle8 || compression == kRle4) {
    if (layout.bits != (compression == kRle8 ? 8 : 4))
      return damaged(kFormat, "its coding is for another number of bits");
    return layout;
  }
  const size_t pixel_bytes = layout.row_bytes * static_cast<size_t>(layout.size.height);
  if (pixel_bytes > file.size() - layout.pixels_at) return damaged(kFormat, kEndsTooEarly);
  return layout;
}

void read_row(const Layout& layout, const uint8_t* source, uint8_t* target) {
  const auto put = [&target](uint8_t red, uint8_t green, uint8_t blue) {
    target[0] = red;
    target[1] = green;
    target[2] = blue;
    target += 3;
  };
  const uint32_t bits = layout.bits;
  for (uint32_t x = 0; x < static_cast<uint32_t>(layout.size.width); ++x) {
    if (bits <= 8) {
      const uint32_t in_byte = 8 - bits - x * bits % 8;  // the first pixel is the highest
      const Rgb color = layout.palette[source[x * bits / 8] >> in_byte & ((1u << bits) - 1)];
      put(color.red, color.green, color.blue);
    } else if (bits == 24) {
      put(source[3 * x + 2], source[3 * x + 1], source[3 * x]);
    } else {
      const uint32_t pixel = bits == 16 ? read16(source + 2 * x) : read32(source + 4 * x);
      const uint8_t alpha = layout.alpha.mask == 0 ? 255 : layout.alpha.of(pixel);
      put(over_white(layout.red.of(pixel), alpha), over_white(layout.green.of(pixel), alpha),
          over_white(layout.blue.of(pixel), alpha));
    }
  }
}

// Runs of palette indices into an image whose pixels have the first colour already: a count and what to repeat (two
// indices in turn where they have 4 bits), or 0 and the end of the row (0), the end (1), a step (2) or a number of
// indices to copy.
Result<void> read_runs(std::span<const uint8_t> runs, const Layout& layout, Image& image) {
  const bool halves = layout.bits == 4;
  int64_t x = 0, y = 0;  // y from below
  const auto put = [&](const uint8_t* indices, size_t i) {
    if (x >= layout.size.width || y >= layout.size.height) return false;
    const uint32_t index = !halves ? indices[i] : i % 2 == 0 ? indices[i / 2] >> 4 : indices[i / 2] & 15;
    const Rgb color = layout.palette[index];
    uint8_t* target = image.row(layout.size.height - 1 - static_cast<int>(y)) + 3 * x++;
    target[0] = color.red;
    target[1] = color.green;
    target[2] = color.blue;
    return true;
  };
  for (;;) {
    if (runs.size() < 2) return damaged(kFormat, kEndsTooEarly);
    const uint8_t count = runs[0], value = runs[1];
    runs = runs.subspan(2);
    if (count > 0) {
      for (size_t i = 0; i < count; ++i) {
        if (!put(&value, halves ? i % 2 : 0)) return damaged(kFormat, "a run leaves the picture");
      }
    } else if (value == 0) {
      x = 0;
      ++y;
    } else if (value == 1) {
      return {};
    } else if (value == 2) {
      if (runs.size() < 2) return damaged(kFormat, kEndsTooEarly);
      x += runs[0];
      y += runs[1];
      runs = runs.subspan(2);
    } else {
      const size_t bytes = ((halves ? (value + 1u) / 2 : value) + 1u) / 2 * 2;  // an even number
      if (runs.size() < bytes) return damaged(kFormat, kEndsTooEarly);
      for (size_t i = 0; i < value; ++i) {
        if (!put(runs.data(), i)) return damaged(kFormat, "a run leaves the picture");
      }
      runs = runs.subspan(bytes);
    }
  }
}

}  // namespace

Result<Decoded> decode_bmp(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const std::span file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const Layout layout = TRY(read_layout(file, limits));
  Decoded decoded{Image(layout.size)};
  if (layout.compression == kRle8 || layout.compression == kRle4) {
    fill(decoded.image, layout.palette[0]);
    TRY(read_runs(file.subspan(layout.pixels_at), layout, decoded.image));
    return decoded;
  }
  for (int y = 0; y < layout.size.height; ++y) {
    const int stored = layout.from_above ? y : layout.size.height - 1 - y;
    read_row(layout, &file[layout.pixels_at] + static_cast<size_t>(stored) * layout.row_bytes, decoded.image.row(y));
  }
  return decoded;
}

}  // namespace nanomind
