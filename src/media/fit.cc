// SPDX-License-Identifier: Apache-2.0
#include "media/fit.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/result.h"

namespace nanomind {
namespace {

enum class Rounding { up, down };

// a * b / c. Exact, where a quotient in floating point can end up beside a whole number.
int scaled(int a, int b, int c, Rounding rounding) {
  const int64_t product = int64_t{a} * b;
  return static_cast<int>((product + (rounding == Rounding::up ? c - 1 : 0)) / c);
}

// True if the picture is wider than the canvas, by shape.
bool is_wider(Size picture, Size canvas) {
  return int64_t{picture.width} * canvas.height > int64_t{canvas.width} * picture.height;
}

void check_sizes(Size picture, Size canvas) {
  CHECK(picture.width > 0 && picture.height > 0 && canvas.width > 0 && canvas.height > 0);
}

}  // namespace

Placement place_inside(Size picture, Size canvas) {
  check_sizes(picture, canvas);
  Placement place{canvas};
  if (is_wider(picture, canvas)) {
    place.scaled.height = scaled(picture.height, canvas.width, picture.width, Rounding::up);
  } else {
    place.scaled.width = scaled(picture.width, canvas.height, picture.height, Rounding::up);
  }
  place.left = (canvas.width - place.scaled.width) / 2;
  place.top = (canvas.height - place.scaled.height) / 2;
  return place;
}

Placement place_over(Size picture, Size canvas) {
  check_sizes(picture, canvas);
  Placement place{canvas};
  if (is_wider(picture, canvas)) {
    place.scaled.width = scaled(picture.width, canvas.height, picture.height, Rounding::down);
  } else {
    place.scaled.height = scaled(picture.height, canvas.width, picture.width, Rounding::down);
  }
  place.left = -((place.scaled.width - canvas.width) / 2);
  place.top = -((place.scaled.height - canvas.height) / 2);
  return place;
}

Image fit_inside(const Image& image, Size canvas, Filter filter, Rgb background) {
  const Placement place = place_inside(image.size, canvas);
  Image picture = resize(image, place.scaled, filter);
  if (picture.size == canvas) return picture;
  Image result(canvas);
  fill(result, background);
  for (int y = 0; y < picture.size.height; ++y) {
    std::memcpy(result.row(place.top + y) + 3 * static_cast<size_t>(place.left), picture.row(y), picture.row_bytes());
  }
  return result;
}

Image fit_over(const Image& image, Size canvas, Filter filter) {
  const Placement place = place_over(image.size, canvas);
  return resize_window(image, place.scaled, {-place.left, -place.top, canvas}, filter);
}

}  // namespace nanomind
