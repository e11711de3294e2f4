// SPDX-License-Identifier: Apache-2.0
#include "media/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <vector>

#include "base/result.h"

namespace nanomind {
namespace {

// Weights leave 8 bits for the pixel and 2 for sums beyond one, of 32.
constexpr int kWeightBits = 22;

double triangle(double x) { return x < 1 ? 1 - x : 0; }

double keys(double x) {
  constexpr double kA = -0.5;
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(x * std::numbers::pi) / (x * std::numbers::pi); }

double lanczos3(double x) { return x < 3 ? sinc(x) * sinc(x / 3) : 0; }

struct Kernel {
  double (*weight)(double distance);  // of distances from 0 on, in pixels of the coarser picture
  double support;                     // zero from here on
};

Kernel kernel_of(Filter filter) {
  switch (filter) {
    case Filter::bicubic: return {keys, 2};
    case Filter::lanczos: return {lanczos3, 3};
    default: return {triangle, 1};
  }
}

// One side of the picture: from `source` pixels to `scaled`, of which [begin, begin + count) are wanted.
struct Axis {
  int source, scaled, begin, count;
};

// For each wanted pixel the run of source pixels it is made of.
struct Taps {
  struct Run {
    int first, count;
    size_t at;  // of its first weight
  };
  std::vector<Run> runs;
  std::vector<int32_t> weights;

  int first_source() const { return runs.front().first; }
  int end_source() const { return runs.back().first + runs.back().count; }
  std::span<const int32_t> of(const Run& run) const {
    return {weights.data() + run.at, static_cast<size_t>(run.count)};
  }
};

Taps make_taps(const Axis& axis, Filter filter) {
  const Kernel kernel = kernel_of(filter);
  const double scale = static_cast<double>(axis.source) / axis.scaled;
  const double widening = std::max(scale, 1.0);
  const double support = kernel.support * widening;
  const double narrowing = 1.0 / widening;
  Taps taps;
  taps.runs.reserve(static_cast<size_t>(axis.count));
  std::vector<double> run;
  for (int i = axis.begin; i < axis.begin + axis.count; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(axis.source, static_cast<int>(center + support + 0.5));
    run.clear();
    double sum = 0;
    for (int x = 0; x < end - first; ++x) {
      run.push_back(kernel.weight(std::abs((x + first - center + 0.5) * narrowing)));
      sum += run.back();
    }
    taps.runs.push_back({first, end - first, taps.weights.size()});
    for (double weight : run) {
      if (sum != 0) weight /= sum;
      taps.weights.push_back(static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kWeightBits)));
    }
  }
  return taps;
}

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

// Rows [first_row, end_row) of the source with their columns scaled.
Image scale_columns(const Image& image, const Taps& taps, int first_row, int end_row) {
  Image result({static_cast<int>(taps.runs.size()), end_row - first_row});
  for (int y = 0; y < result.size.height; ++y) {
    const uint8_t* source_row = image.row(first_row + y);
    uint8_t* target = result.row(y);
    for (const Taps::Run& run : taps.runs) {
      const uint8_t* source = source_row + 3 * static_cast<size_t>(run.first);
      int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (const int32_t weight : taps.of(run)) {
        red += weight * source[0];
        green += weight * source[1];
        blue += weight * source[2];
        source += 3;
      }
      target[0] = to_byte(red);
      target[1] = to_byte(green);
      target[2] = to_byte(blue);
      target += 3;
    }
  }
  return result;
}

// `image` begins with row `first_row` of the picture that the taps speak of.
Image scale_rows(const Image& image, const Taps& taps, int first_row) {
  Image result({image.size.width, static_cast<int>(taps.runs.size())});
  std::vector<int32_t> sums(image.row_bytes());
  for (int y = 0; y < result.size.height; ++y) {
    const Taps::Run& run = taps.runs[static_cast<size_t>(y)];
    std::ranges::fill(sums, kHalf);
    const uint8_t* source = image.row(run.first - first_row);
    for (const int32_t weight : taps.of(run)) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * source[i];
      source += sums.size();
    }
    std::ranges::transform(sums, result.row(y), to_byte);
  }
  return result;
}

// The nearest source pixel of each wanted one. Positions are summed up step by step, as Pillow does, with its rounding.
std::vector<int> nearest_of(const Axis& axis) {
  const double scale = static_cast<double>(axis.source) / axis.scaled;
  std::vector<int> result;
  result.reserve(static_cast<size_t>(axis.count));
  double position = scale * 0.5;
  for (int i = 0; i < axis.begin + axis.count; ++i, position += scale) {
    if (i >= axis.begin) result.push_back(std::min(static_cast<int>(position), axis.source - 1));
  }
  return result;
}

Image pick_nearest(const Image& image, const Axis& columns, const Axis& rows) {
  const std::vector<int> xs = nearest_of(columns), ys = nearest_of(rows);
  Image result({columns.count, rows.count});
  uint8_t* target = result.pixels.data();
  for (const int y : ys) {
    for (const int x : xs) {
      std::memcpy(target, image.row(y) + 3 * static_cast<size_t>(x), 3);
      target += 3;
    }
  }
  return result;
}

bool is_whole(const Axis& axis) { return axis.source == axis.scaled && axis.count == axis.scaled; }

}  // namespace

Image resize_window(const Image& image, Size scaled, const Window& window, Filter filter) {
  CHECK(image.size.width > 0 && image.size.height > 0 && window.size.width > 0 && window.size.height > 0);
  CHECK(window.left >= 0 && window.left <= scaled.width - window.size.width);
  CHECK(window.top >= 0 && window.top <= scaled.height - window.size.height);
  const Axis columns{image.size.width, scaled.width, window.left, window.size.width};
  const Axis rows{image.size.height, scaled.height, window.top, window.size.height};
  if (filter == Filter::nearest) return pick_nearest(image, columns, rows);
  if (is_whole(rows)) {
    return is_whole(columns) ? image : scale_columns(image, make_taps(columns, filter), 0, image.size.height);
  }
  const Taps row_taps = make_taps(rows, filter);
  if (is_whole(columns)) return scale_rows(image, row_taps, 0);
  const int first_row = row_taps.first_source();
  const Image narrow = scale_columns(image, make_taps(columns, filter), first_row, row_taps.end_source());
  return scale_rows(narrow, row_taps, first_row);
}

Image resize(const Image& image, Size size, Filter filter) { return resize_window(image, size, {0, 0, size}, filter); }

}  // namespace nanomind
