// SPDX-License-Identifier: Apache-2.0
// Decodes any bytes as a picture and brings what comes out to a model's size. Checksums of PNG chunks are put right
// first, so that the code behind them is reached.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/result.h"
#include "media/decode.h"
#include "media/fit.h"
#include "media/orientation.h"
#include "media/patches.h"

using namespace nanomind;

namespace {

constexpr ImageLimits kLimits{.bytes = 1 << 20, .pixels = 1 << 20, .side = 1 << 16};

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
  }
  return ~crc;
}

uint32_t big_endian(const std::byte* p) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(p[i]);
  return value;
}

// A chunk is length, type, data, checksum of type and data.
void put_right(std::span<std::byte> png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length = big_endian(&png[at]);
    if (length > png.size() - at - 12) return;
    const uint32_t crc = crc32(png.subspan(at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<std::byte>(crc >> (24 - 8 * i));
    at += length + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  if (sniff(bytes) == ImageFormat::png) put_right(bytes);
  const int orientation = exif_orientation(bytes);
  CHECK(orientation >= 1 && orientation <= 8);
  const auto image = decode_image(bytes, kLimits);
  if (!image) {
    CHECK(!image.error().message.empty());
    return 0;
  }
  CHECK(image->size.width >= 1 && image->size.height >= 1);
  CHECK(int64_t{image->size.width} * image->size.height <= kLimits.pixels);
  CHECK(image->pixels.size() == image->row_bytes() * static_cast<size_t>(image->size.height));
  const Image inside = fit_inside(*image, {28, 28}, Filter::bicubic, {122, 116, 104});
  const Image over = fit_over(*image, {28, 28}, Filter::lanczos);
  CHECK(patchify(inside, 14, {}).size() == patchify(over, 7, {}).size());
  return 0;
}
