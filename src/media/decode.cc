// SPDX-License-Identifier: Apache-2.0
#include "media/decode.h"

#include <fmt/format.h>

#include <utility>

#include "media/codecs.h"
#include "media/orientation.h"

namespace nanomind {
namespace {

std::unexpected<Error> other_format(ImageFormat format) {
  constexpr std::string_view kReadable = "JPEG, PNG, WebP, GIF, BMP and PPM pictures are read";
  if (format == ImageFormat::unknown) {
    return fail(ErrorCode::unsupported, fmt::format("This is not a picture of a known kind; {}.", kReadable));
  }
  const std::string_view name = format_name(format);
  switch (format) {
    case ImageFormat::heic:
      return fail(
          ErrorCode::unsupported,
          fmt::format("This is a {} picture, which is not supported; {}. Send it as JPEG (an iPhone does so with "
                      "Settings > Camera > Formats > Most Compatible), or convert it first.",
                      name, kReadable));
    case ImageFormat::html:
      return fail(ErrorCode::unsupported,
                  "This is a web page (HTML), not a picture. Take the address of the picture itself.");
    case ImageFormat::svg:
    case ImageFormat::pdf:
      return fail(ErrorCode::unsupported,
                  fmt::format("This is a {} file, which has no pixels; {}. Export it as PNG.", name, kReadable));
    default:
      return fail(
          ErrorCode::unsupported,
          fmt::format("This is a {} picture, which is not supported; {}. Convert it to PNG or JPEG.", name, kReadable));
  }
}

Result<Decoded> decode_as(ImageFormat format, std::span<const std::byte> bytes, const ImageLimits& limits) {
  switch (format) {
    case ImageFormat::jpeg: return decode_jpeg(bytes, limits);
    case ImageFormat::png: return decode_png(bytes, limits);
    case ImageFormat::webp: return decode_webp(bytes, limits);
    case ImageFormat::gif: return decode_gif(bytes, limits);
    case ImageFormat::bmp: return decode_bmp(bytes, limits);
    case ImageFormat::pnm: return decode_pnm(bytes, limits);
    default: return other_format(format);
  }
}

}  // namespace

Result<Size> check_size(int64_t width, int64_t height, const ImageLimits& limits) {
  if (width < 1 || height < 1) {
    return fail(ErrorCode::corrupt, fmt::format("The picture has no pixels: it is {} x {}.", width, height));
  }
  if (width > limits.side || height > limits.side || width * height > limits.pixels) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("The picture is {} x {} pixels; at most {} on a side and {} in all are read. Make it smaller.",
                    width, height, limits.side, limits.pixels));
  }
  return Size{static_cast<int>(width), static_cast<int>(height)};
}

std::unexpected<Error> damaged(std::string_view format, std::string_view reason) {
  return fail(
      ErrorCode::corrupt,
      fmt::format("The {} picture cannot be read: {}. The file is damaged or incomplete; save or send it again.",
                  format, reason));
}

std::unexpected<Error> not_supported(std::string_view format, std::string_view reason) {
  return fail(ErrorCode::unsupported, fmt::format("This kind of {} picture is not supported: {}. Save it as PNG or as "
                                                  "an ordinary JPEG.",
                                                  format, reason));
}

Result<void> check_bytes(size_t bytes, const ImageLimits& limits) {
  if (bytes == 0) return fail(ErrorCode::invalid_argument, "The picture is empty: it has 0 bytes. Send it again.");
  if (bytes > limits.bytes) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("The picture has {} bytes; at most {} are read. Make it smaller.", bytes, limits.bytes));
  }
  return {};
}

Result<Image> decode_image(std::span<const std::byte> bytes, const ImageLimits& limits) {
  TRY(check_bytes(bytes.size(), limits));
  Decoded decoded = TRY(decode_as(sniff(bytes), bytes, limits));
  return oriented(std::move(decoded.image), decoded.orientation);
}

}  // namespace nanomind
