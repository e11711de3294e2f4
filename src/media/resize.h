// SPDX-License-Identifier: Apache-2.0
// Scaling pictures exactly as Pillow does (`Image.resize`), which the processors of most vision models use or imitate:
// filters widen with the scale when shrinking, 22-bit fixed-point weights, columns before rows with 8 bits in between.
// Pillow 13 takes rows first where the height shrinks more; the models were trained with what came before, and
// torchvision does the same.
#pragma once

#include "media/image.h"

namespace nanomind {

enum class Filter {
  nearest,
  bilinear,  // a triangle
  bicubic,   // Keys with a = -0.5
  lanczos,   // three lobes
};

// A rectangle of pixels.
struct Window {
  int left = 0, top = 0;
  Size size;
};

// The picture scaled to `size`, of which both sides are at least 1.
Image resize(const Image& image, Size size, Filter filter);

// Only `window` of the picture scaled to `scaled`: the same pixels as cutting it out afterwards, but nothing else is
// computed or kept, so that the scaled picture may be of any size. The window lies inside it.
Image resize_window(const Image& image, Size scaled, const Window& window, Filter filter);

}  // namespace nanomind
