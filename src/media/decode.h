// SPDX-License-Identifier: Apache-2.0
// Pictures from bytes to pixels: JPEG (also progressive, arithmetic, gray, CMYK), PNG (every type), WebP, GIF, BMP and
// PPM.
//
// * Turned and mirrored as EXIF says, in JPEG, PNG and WebP.
// * What is transparent shows white. Samples of 16 bits keep their high byte. Colour profiles and gamma are left alone,
// as the
//   processors that models were trained with leave them.
// * Of an animation the first frame, on its whole canvas.
// * CMYK counts as stored inverted, with Adobe's marker or without, as Pillow and browsers take it.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "media/image.h"
#include "media/image_format.h"

namespace nanomind {

// Whether a file has bytes, and not more than `limits`: before anything reads them all. Error: `invalid_argument`.
Result<void> check_bytes(size_t bytes, const ImageLimits& limits = {});

// Errors: `invalid_argument` if it is empty or beyond `limits` (found out from its header, without decoding),
// `unsupported` for other kinds of files, with their name, `corrupt` for damaged ones and those that end too early. May
// be called from any thread.
Result<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits = {});

}  // namespace nanomind
