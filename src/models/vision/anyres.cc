// SPDX-License-Identifier: Apache-2.0
// The arithmetic is that of transformers' `llava_onevision`, down to Python's rounding.
#include "models/vision/anyres.h"

#include <algorithm>
#include <cmath>

#include "media/fit.h"
#include "media/resize.h"
#include "models/vision/tower.h"

namespace nanomind {
namespace {

constexpr Filter kFilter = Filter::bicubic;
constexpr double kShrinkFrom = 1.1;  // times the rows that are wanted on a side

// Of the sizes that may be used the one that shows most of the picture; of equal ones that which wastes least.
Size best_size(Size picture, const AnyResolution& options, const PictureDetail& detail) {
  Size best{options.tile, options.tile};
  int64_t most_shown = 0, least_wasted = INT64_MAX;
  for (const Size size : options.sizes) {
    const int tiles = size.width / options.tile * (size.height / options.tile);
    if (detail.most_tiles && tiles > *detail.most_tiles) continue;
    const double scale =
        std::min(static_cast<double>(size.width) / picture.width, static_cast<double>(size.height) / picture.height);
    const auto width = static_cast<int64_t>(picture.width * scale),
               height = static_cast<int64_t>(picture.height * scale);
    const int64_t shown = std::min(width * height, int64_t{picture.width} * picture.height);
    const int64_t wasted = int64_t{size.width} * size.height - shown;
    if (shown < most_shown || (shown == most_shown && wasted >= least_wasted)) continue;
    most_shown = shown;
    least_wasted = wasted;
    best = size;
  }
  return best;
}

// The picture's size when it just fits into `canvas`.
Size fitted(Size picture, Size canvas) {
  const double x = static_cast<double>(canvas.width) / picture.width;
  const double y = static_cast<double>(canvas.height) / picture.height;
  if (x < y) return {canvas.width, std::min(static_cast<int>(std::ceil(picture.height * x)), canvas.height)};
  return {std::min(static_cast<int>(std::ceil(picture.width * y)), canvas.width), canvas.height};
}

// A rectangle of the large grid of rows.
struct Cells {
  int64_t top = 0, left = 0, rows = 0, columns = 0;
};

// The cells that show the picture and no border.
Cells without_border(Size picture, int64_t rows, int64_t columns) {
  const auto rounded = [](double x) { return static_cast<int64_t>(std::nearbyint(x * 1e7) / 1e7); };
  const double shape = static_cast<double>(picture.width) / picture.height;
  if (shape > static_cast<double>(columns) / static_cast<double>(rows)) {
    const int64_t height = rounded(picture.height * (static_cast<double>(columns) / picture.width));
    const int64_t border = (rows - height) / 2;
    return {.top = border, .left = 0, .rows = rows - 2 * border, .columns = columns};
  }
  const int64_t width = rounded(picture.width * (static_cast<double>(rows) / picture.height));
  const int64_t border = (columns - width) / 2;
  return {.top = 0, .left = border, .rows = rows, .columns = columns - 2 * border};
}

// Where a cell of `to` cells lies between two of `from` (bilinear, with corners not aligned).
struct Between {
  int64_t low = 0, high = 0;
  float share = 0;  // of the high one
};
Between between(int64_t i, int64_t to, int64_t from) {
  const double at =
      std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5);
  const auto low = static_cast<int64_t>(at);
  return {.low = low, .high = std::min(low + 1, from - 1), .share = static_cast<float>(at - static_cast<double>(low))};
}

constexpr BlendedRow kMark{.rows = {-1, -1, -1, -1}, .weights = {1, 0, 0, 0}};

class Mosaic {
 public:
  Mosaic(Size large, const AnyResolution& o) : o_(o), across_(large.width / o.tile), down_(large.height / o.tile) {}

  std::vector<BlendedRow> rows(Size picture) const {
    const Cells cells = without_border(picture, down_ * o_.side, across_ * o_.side);
    int64_t rows = cells.rows, columns = cells.columns;
    const double wanted = static_cast<double>(o_.most_tiles) * static_cast<double>(o_.side * o_.side);
    if (const double ratio = std::sqrt(static_cast<double>(rows * columns) / wanted); ratio > kShrinkFrom) {
      rows = std::max<int64_t>(1, static_cast<int64_t>(std::floor(static_cast<double>(rows) / ratio)));
      columns = std::max<int64_t>(1, static_cast<int64_t>(std::floor(static_cast<double>(columns) / ratio)));
    }
    std::vector<BlendedRow> result;
    for (int64_t y = 0; y < rows; ++y) {
      const Between v = between(y, rows, cells.rows);
      for (int64_t x = 0; x < columns; ++x) {
        const Between h = between(x, columns, cells.columns);
        result.push_back({.rows = {cell(cells, v.low, h.low), cell(cells, v.low, h.high), cell(cells, v.high, h.low),
                                   cell(cells, v.high, h.high)},
                          .weights = {(1 - v.share) * (1 - h.share), (1 - v.share) * h.share, v.share * (1 - h.share),
                                      v.share * h.share}});
      }
      result.push_back(kMark);
    }
    return result;
  }

 private:
  // The row of a cell, counted through all tiles, of which the first is the whole.
  int32_t cell(const Cells& cells, int64_t y, int64_t x) const {
    y += cells.top;
    x += cells.left;
    const int64_t tile = 1 + y / o_.side * across_ + x / o_.side;
    return static_cast<int32_t>((tile * o_.side + y % o_.side) * o_.side + x % o_.side);
  }

  const AnyResolution& o_;
  int64_t across_, down_;  // tiles
};

}  // namespace

CutPicture cut_square(const Image& picture, int tile, Rgb border) {
  const int longer = std::max(picture.size.width, picture.size.height);
  CutPicture cut;
  const double scale = static_cast<double>(tile) / longer;
  cut.add_tile(resize(center_on(picture, {longer, longer}, border), {tile, tile}, kFilter),
               {.left = -static_cast<double>((longer - picture.size.width) / 2),
                .top = -static_cast<double>((longer - picture.size.height) / 2),
                .scale_x = scale,
                .scale_y = scale});
  return cut;
}

CutPicture cut_any_resolution(const Image& picture, const AnyResolution& o, const PictureDetail& detail) {
  if (detail.company == PictureDetail::Company::several) {
    CutPicture square = cut_square(picture, o.tile, o.border);
    square.add_rows({kMark});
    return square;
  }
  const Size tile{o.tile, o.tile};
  CutPicture cut;
  cut.add_tile(resize(picture, tile, kFilter), place_of(picture.size, tile, 0, 0));
  if (detail.most_tiles && *detail.most_tiles < 1) {
    cut.add_rows({kMark});
    return cut;
  }
  const Size large = best_size(picture.size, o, detail), scaled = fitted(picture.size, large);
  const Image canvas = center_on(resize(picture, scaled, kFilter), large, Rgb{});
  const int border_x = (large.width - scaled.width) / 2, border_y = (large.height - scaled.height) / 2;
  for (int top = 0; top < large.height; top += o.tile) {
    for (int left = 0; left < large.width; left += o.tile) {
      cut.add_image(resize_window(canvas, large, {left, top, tile}, kFilter),
                    place_of(picture.size, scaled, left - border_x, top - border_y));
    }
  }
  cut.add_rows(Mosaic(large, o).rows(picture.size));
  return cut;
}

}  // namespace nanomind
