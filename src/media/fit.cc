// SPDX-License-Identifier: Apache-2.0
#include "media/fit.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/result.h"

namespace nanomind {
namespace {

enum class Rounding { up, down };
enum class Side { width, height };

// a * b / c. Exact, where a quotient in floating point can end up beside a whole number.
int scaled(int a, int b, int c, Rounding rounding) {
  const int64_t product = int64_t{a} * b;
  return static_cast<int>((product + (rounding == Rounding::up ? c - 1 : 0)) / c);
}

// The picture scaled so that one side is the canvas's.
Size scaled_to(Side side, Size picture, Size canvas, Rounding rounding) {
  Size size = canvas;
  if (side == Side::width) {
    size.height = scaled(picture.height, canvas.width, picture.width, rounding);
  } else {
    size.width = scaled(picture.width, canvas.height, picture.height, rounding);
  }
  return size;
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
  const Side side = is_wider(picture, canvas) ? Side::width : Side::height;
  const Size size = scaled_to(side, picture, canvas, Rounding::up);
  return {.scaled = size, .left = (canvas.width - size.width) / 2, .top = (canvas.height - size.height) / 2};
}

Placement place_over(Size picture, Size canvas) {
  check_sizes(picture, canvas);
  const Side side = is_wider(picture, canvas) ? Side::height : Side::width;
  const Size size = scaled_to(side, picture, canvas, Rounding::down);
  return {.scaled = size, .left = -((size.width - canvas.width) / 2), .top = -((size.height - canvas.height) / 2)};
}

Image center_on(const Image& image, Size canvas, Rgb background) {
  check_sizes(image.size, canvas);
  const int left = (canvas.width - image.size.width) / 2, top = (canvas.height - image.size.height) / 2;
  CHECK(left >= 0 && top >= 0);
  Image result(canvas);
  fill(result, background);
  for (int y = 0; y < image.size.height; ++y)
    std::memcpy(result.row(top + y) + 3 * static_cast<size_t>(left), image.row(y), image.row_bytes());
  return result;
}

Image fit_inside(const Image& image, Size canvas, Filter filter, Rgb background) {
  Image picture = resize(image, place_inside(image.size, canvas).scaled, filter);
  return picture.size == canvas ? std::move(picture) : center_on(picture, canvas, background);
}

Image fit_over(const Image& image, Size canvas, Filter filter) {
  const Placement place = place_over(image.size, canvas);
  return resize_window(image, place.scaled, {-place.left, -place.top, canvas}, filter);
}

}  // namespace nanomind
