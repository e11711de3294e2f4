// SPDX-License-Identifier: Apache-2.0
// Bringing a picture of any shape to the size a model takes: whole with borders, or filling it with the edges cut off.
#pragma once

#include "media/image.h"
#include "media/resize.h"

namespace nanomind {

// Where the picture lies on what the model sees: the point (x, y) of the original is at (left + x * scaled.width /
// width, top + y * scaled.height / height). Answers with coordinates are turned back by it.
struct Placement {
  Size scaled;
  int left = 0, top = 0;  // negative where edges are cut off
};

// The largest scaling that fits into `canvas`, rounded up to whole pixels, in the middle (the odd pixel of a border
// goes right and below). As LLaVA's processors pad: a 1:4096 picture keeps one pixel of width.
Placement place_inside(Size picture, Size canvas);

// The smallest scaling that covers `canvas`, rounded down to whole pixels, its middle seen; as CLIP's processors do
// with "shortest_edge" and a centre crop.
Placement place_over(Size picture, Size canvas);

// The picture in the middle of a canvas that is at least as large (the odd pixel of a border goes right and below).
Image center_on(const Image& image, Size canvas, Rgb background);

// The picture so placed, with `background` around it. A picture of the canvas's own size is unchanged. Both take time
// and memory by the size of picture and canvas only, whatever the shape.
Image fit_inside(const Image& image, Size canvas, Filter filter, Rgb background);
Image fit_over(const Image& image, Size canvas, Filter filter);

}  // namespace nanomind
