// SPDX-License-Identifier: Apache-2.0
// The first layer of a vision model is a convolution whose kernels do not overlap: a product of its weight [E, 3, P, P]
// with the picture cut into patches of P x P pixels. This makes the rows of that product.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "media/image.h"

namespace nanomind {

// A sample s of channel c (red, green, blue) becomes (s / 255 - mean[c]) / std[c].
struct Normalization {
  std::array<float, 3> mean{0.5f, 0.5f, 0.5f};
  std::array<float, 3> std{0.5f, 0.5f, 0.5f};
};

// Rows [height / P * width / P, 3 * P * P], top left patch first, along the rows of the picture. Within a row the order
// of the weight: channel, then y, then x. With P the side of a square picture the one row is its planes. What is left
// of width and height beyond whole patches is not looked at; `rows` in the second form has exactly the room.
std::vector<float> patchify(const Image& image, int patch, const Normalization& normalization);
void patchify(const Image& image, int patch, const Normalization& normalization, std::span<float> rows);

}  // namespace nanomind
