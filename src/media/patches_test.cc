// SPDX-License-Identifier: Apache-2.0
// Against the convolution that patches stand for, computed from its definition.
#include "media/patches.h"

#include <gtest/gtest.h>

#include <vector>

namespace nanomind {
namespace {

Image counting(Size size) {
  Image image(size);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 37 + i / 7);
  return image;
}

constexpr Normalization kClip{{0.48145466f, 0.4578275f, 0.40821073f}, {0.26862954f, 0.26130258f, 0.27577711f}};

TEST(PatchesTest, RowsTimesWeightIsAConvolution) {
  constexpr int kPatch = 4, kOutputs = 3;
  const Image image = counting({12, 8});
  const std::vector<float> rows = patchify(image, kPatch, kClip);
  ASSERT_EQ(rows.size(), 6u * 48u);
  // weight[o][c][y][x], any numbers.
  const auto weight = [](int o, int c, int y, int x) { return ((o * 5 + c * 3 + y * 7 + x * 11) % 13 - 6) / 8.0; };
  for (int py = 0; py < 2; ++py) {
    for (int px = 0; px < 3; ++px) {
      for (int o = 0; o < kOutputs; ++o) {
        double expected = 0, product = 0;
        for (int c = 0; c < 3; ++c) {
          for (int y = 0; y < kPatch; ++y) {
            for (int x = 0; x < kPatch; ++x) {
              const double sample = image.row(py * kPatch + y)[3 * (px * kPatch + x) + c];
              const int at = (py * 3 + px) * 48 + (c * kPatch + y) * kPatch + x;
              const auto channel = static_cast<size_t>(c), index = static_cast<size_t>(at);
              expected += weight(o, c, y, x) * (sample / 255 - kClip.mean[channel]) / kClip.std[channel];
              product += weight(o, c, y, x) * rows[index];
            }
          }
        }
        EXPECT_NEAR(product, expected, 1e-4);  // float rounding of 48 values up to 2
      }
    }
  }
}

TEST(PatchesTest, OnePatchOfTheWholeIsThePlanes) {
  const Image image = counting({2, 2});
  const std::vector<float> planes = patchify(image, 2, {{0, 0, 0}, {1 / 255.0f, 1 / 255.0f, 1 / 255.0f}});
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(planes[c * 4 + i], image.pixels[3 * i + c], 1e-4);
  }
}

TEST(PatchesTest, HalvesMapToMinusOneAndOne) {
  Image image({1, 1});
  image.pixels = {0, 255, 51};
  const std::vector<float> row = patchify(image, 1, {});
  EXPECT_FLOAT_EQ(row[0], -1.0f);
  EXPECT_FLOAT_EQ(row[1], 1.0f);
  EXPECT_FLOAT_EQ(row[2], -0.6f);
}

}  // namespace
}  // namespace nanomind
