// SPDX-License-Identifier: Apache-2.0
// WebP through libwebp: lossy, lossless, with alpha; of an animation the first frame, on a white canvas.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "media/codecs.h"
#include "media/orientation.h"

namespace nanomind {
namespace {

constexpr std::string_view kFormat = "WebP";

struct DemuxerFree {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DemuxerFree>;

// The first frame; releases what the iterator holds.
struct Frame {
  WebPIterator at{};
  Frame() = default;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { WebPDemuxReleaseIterator(&at); }
};

std::string_view reason_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY: return "there is not enough memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses an unknown feature";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return kEndsTooEarly;
    default: return "its coded pixels make no sense";
  }
}

// The frame's pixels as [height, width, channels], 3 or 4.
Result<std::vector<uint8_t>> decode_frame(const WebPIterator& frame, size_t channels) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return damaged(kFormat, "the installed libwebp is of another version");
  VP8StatusCode status = WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &config.input);
  if (status != VP8_STATUS_OK) return damaged(kFormat, reason_of(status));
  if (config.input.width != frame.width || config.input.height != frame.height) {
    return damaged(kFormat, "its frame has two different sizes");
  }
  const size_t row_bytes = channels * static_cast<size_t>(frame.width);
  std::vector<uint8_t> pixels(row_bytes * static_cast<size_t>(frame.height));
  config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels.data(), static_cast<int>(row_bytes), pixels.size()};
  status = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) return damaged(kFormat, reason_of(status));
  return pixels;
}

int orientation_of(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
    orientation = exif_orientation(std::as_bytes(std::span(chunk.chunk.bytes, chunk.chunk.size)));
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

Result<Decoded> decode_webp(std::span<const std::byte> bytes, const ImageLimits& limits) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(data.bytes, data.size, &features);
  if (status != VP8_STATUS_OK) return damaged(kFormat, reason_of(status));
  const Size canvas = TRY(check_size(features.width, features.height, limits));
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const Demuxer demuxer(WebPDemuxPartial(&data, &state));
  if (!demuxer || state != WEBP_DEMUX_DONE) {
    return damaged(kFormat, state == WEBP_DEMUX_PARSE_ERROR ? "its parts do not fit together" : kEndsTooEarly);
  }
  Frame frame;
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame.at)) return damaged(kFormat, "it holds no picture");
  const WebPIterator& at = frame.at;
  if (at.x_offset < 0 || at.y_offset < 0 || at.width < 1 || at.height < 1 || at.width > canvas.width - at.x_offset ||
      at.height > canvas.height - at.y_offset) {
    return damaged(kFormat, "its first frame lies outside the canvas");
  }

  Decoded decoded{{}, orientation_of(demuxer.get())};
  std::vector<uint8_t> pixels = TRY(decode_frame(at, at.has_alpha ? 4 : 3));
  const auto frame_pixels = static_cast<size_t>(at.width) * static_cast<size_t>(at.height);
  if (at.has_alpha) {
    flatten(pixels.data(), pixels.data(), frame_pixels);
    pixels.resize(3 * frame_pixels);
  }
  Image& image = decoded.image;
  if (Size{at.width, at.height} == canvas) {
    image.size = canvas;
    image.pixels = std::move(pixels);
    return decoded;
  }
  image = Image(canvas);
  fill(image, {255, 255, 255});
  const size_t row_bytes = 3 * static_cast<size_t>(at.width);
  for (int y = 0; y < at.height; ++y) {
    std::memcpy(image.row(at.y_offset + y) + 3 * static_cast<size_t>(at.x_offset),
                pixels.data() + static_cast<size_t>(y) * row_bytes, row_bytes);
  }
  return decoded;
}

}  // namespace nanomind
