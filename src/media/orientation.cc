// SPDX-License-Identifier: Apache-2.0
#include "media/orientation.h"

#include <libexif/exif-data.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nanomind {
namespace {

constexpr std::string_view kPrefix("Exif\0\0", 6);
// The largest segment of a JPEG. More is not a camera's, and the tag stands near the beginning.
constexpr size_t kExifBytesMax = 65'535;

struct ExifFree {
  void operator()(ExifData* data) const { exif_data_unref(data); }
};

// Which source pixel shows at (x, y) of the result: the coordinates change places, then run backwards.
struct Turn {
  bool swaps = false;
  bool mirrors_x = false;
  bool mirrors_y = false;
};

constexpr Turn kTurns[] = {
    {},                    // 1
    {false, true, false},  // 2
    {false, true, true},   // 3
    {false, false, true},  // 4
    {true, false, false},  // 5
    {true, false, true},   // 6
    {true, true, true},    // 7
    {true, true, false},   // 8
};

// The standard has a SHORT here, and some writers a LONG; 0 for anything else.
uint32_t number_of(const ExifEntry& entry, ExifByteOrder order) {
  if (entry.data == nullptr) return 0;
  if (entry.format == EXIF_FORMAT_SHORT && entry.size >= 2) return exif_get_short(entry.data, order);
  if (entry.format == EXIF_FORMAT_LONG && entry.size >= 4) return exif_get_long(entry.data, order);
  return 0;
}

}  // namespace

int exif_orientation(std::span<const std::byte> exif) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(exif.data());
  std::vector<unsigned char> data;
  if (exif.size() < kPrefix.size() || std::memcmp(bytes, kPrefix.data(), kPrefix.size()) != 0) {
    data.assign(kPrefix.begin(), kPrefix.end());
  }
  data.insert(data.end(), bytes, bytes + std::min(exif.size(), kExifBytesMax));

  const std::unique_ptr<ExifData, ExifFree> parsed(exif_data_new());
  if (!parsed) return 1;
  exif_data_unset_option(parsed.get(), EXIF_DATA_OPTION_FOLLOW_SPECIFICATION);  // reads, repairs nothing
  exif_data_set_option(parsed.get(), EXIF_DATA_OPTION_DONT_CHANGE_MAKER_NOTE);
  exif_data_load_data(parsed.get(), data.data(), static_cast<unsigned>(data.size()));
  const ExifEntry* entry = exif_content_get_entry(parsed->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  const uint32_t orientation = entry == nullptr ? 0 : number_of(*entry, exif_data_get_byte_order(parsed.get()));
  return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
}

Image oriented(Image image, int orientation) {
  CHECK(orientation >= 1 && orientation <= 8);
  if (orientation == 1) return image;
  const Turn turn = kTurns[orientation - 1];
  const Size from = image.size;
  Image result(turn.swaps ? Size{from.height, from.width} : from);
  // Steps in the source for one step right and one step down in the result.
  const ptrdiff_t right_x = turn.mirrors_x ? -3 : 3;
  const ptrdiff_t right_y = static_cast<ptrdiff_t>(image.row_bytes()) * (turn.mirrors_y ? -1 : 1);
  const ptrdiff_t step_x = turn.swaps ? right_y : right_x;
  const ptrdiff_t step_y = turn.swaps ? right_x : right_y;
  const uint8_t* origin = image.row(turn.mirrors_y ? from.height - 1 : 0) +
                          (turn.mirrors_x ? 3 * (static_cast<ptrdiff_t>(from.width) - 1) : 0);
  // In squares, so that a column of the source stays in the cache until its neighbours are read.
  constexpr int kSquare = 32;
  for (int top = 0; top < result.size.height; top += kSquare) {
    const int bottom = std::min(top + kSquare, result.size.height);
    for (int left = 0; left < result.size.width; left += kSquare) {
      const int right = std::min(left + kSquare, result.size.width);
      for (int y = top; y < bottom; ++y) {
        uint8_t* target = result.row(y) + 3 * static_cast<ptrdiff_t>(left);
        const uint8_t* source = origin + y * step_y + left * step_x;
        for (int x = left; x < right; ++x, target += 3, source += step_x) std::memcpy(target, source, 3);
      }
    }
  }
  return result;
}

}  // namespace nanomind
