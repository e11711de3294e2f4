// SPDX-License-Identifier: Apache-2.0
#include "media/picture_difference.h"

#include <cstdlib>
#include <numeric>

#include "media/resize.h"

namespace nanomind {

Thumbnail thumbnail(const Image& image) {
  const Image small = resize(image, {kThumbnailSide, kThumbnailSide}, Filter::bilinear);
  Thumbnail result{};
  for (size_t i = 0; i < result.size(); ++i) {
    const uint8_t* pixel = small.pixels.data() + 3 * i;
    result[i] = static_cast<uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
  }
  return result;
}

double difference(const Thumbnail& a, const Thumbnail& b) {
  int sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return static_cast<double>(sum) / static_cast<double>(a.size());
}

double brightness(const Thumbnail& thumbnail) {
  return static_cast<double>(std::accumulate(thumbnail.begin(), thumbnail.end(), 0)) /
         static_cast<double>(thumbnail.size());
}

}  // namespace nanomind
