// SPDX-License-Identifier: Apache-2.0
// Which kind of file some bytes are, by their content. Names and types that come with a file are not asked.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace nanomind {

enum class ImageFormat {
  unknown,
  // Those that decode_image reads.
  jpeg,
  png,
  webp,
  gif,
  bmp,
  pnm,  // PBM, PGM and PPM
  // Those that are told apart only to say so.
  heic,
  avif,
  tiff,
  svg,
  jpeg_xl,
  jpeg_2000,
  icon,
  photoshop,
  pdf,
  html,
};

// Looks at no more than the first 4096 bytes.
ImageFormat sniff(std::span<const std::byte> bytes);

// As people call it: "JPEG", "HEIC".
std::string_view format_name(ImageFormat format);

}  // namespace nanomind
