// SPDX-License-Identifier: Apache-2.0
// The portable bitmaps, graymaps and pixmaps of Netpbm: P1 to P6, text or binary, samples of up to 16 bits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "media/codecs.h"

namespace nanomind {
namespace {

constexpr std::string_view kFormat = "PPM";

bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Reads words of text with comments, then whatever follows.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : rest_(bytes) {}

  std::span<const uint8_t> rest() const { return rest_; }

  void skip(size_t count) { rest_ = rest_.subspan(std::min(count, rest_.size())); }

  // Over white space and comments, which go from # to the end of a line.
  void skip_space() {
    while (!rest_.empty() && (is_space(rest_[0]) || rest_[0] == '#')) {
      if (rest_[0] == '#') {
        while (!rest_.empty() && rest_[0] != '\n') skip(1);
      } else {
        skip(1);
      }
    }
  }

  // The next number; none where there is something else, or one beyond any use.
  std::optional<uint32_t> number() {
    skip_space();
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      value = value * 10 + (rest_[digits] - '0');
      if (value > 100'000'000) return std::nullopt;
    }
    if (digits == 0) return std::nullopt;
    skip(digits);
    return value;
  }

  // The next digit 0 or 1; bits need no space between them.
  std::optional<uint32_t> bit() {
    skip_space();
    if (rest_.empty() || (rest_[0] != '0' && rest_[0] != '1')) return std::nullopt;
    const uint32_t value = rest_[0] - '0';
    skip(1);
    return value;
  }

 private:
  std::span<const uint8_t> rest_;
};

struct Header {
  char kind = 0;  // '1' to '6'
  Size size;
  uint32_t most = 1;  // the sample that is white

  bool is_bitmap() const { return kind == '1' || kind == '4'; }
  bool is_text() const { return kind <= '3'; }
  size_t channels() const { return kind == '3' || kind == '6' ? 3 : 1; }
};

std::unexpected<Error> ends_or(const Cursor& cursor, std::string_view reason) {
  return damaged(kFormat, cursor.rest().empty() ? kEndsTooEarly : reason);
}

Result<Header> read_header(Cursor& cursor, const ImageLimits& limits) {
  Header header;
  header.kind = static_cast<char>(cursor.rest()[1]);
  cursor.skip(2);
  const auto width = cursor.number();
  const auto height = width ? cursor.number() : std::nullopt;
  const auto most = header.is_bitmap() ? std::optional<uint32_t>(1) : height ? cursor.number() : std::nullopt;
  if (!width || !height || !most) return ends_or(cursor, "its header lacks a number");
  header.size = TRY(check_size(*width, *height, limits));
  if (*most < 1 || *most > 65'535) return damaged(kFormat, "its largest sample is not between 1 and 65535");
  header.most = *most;
  if (!header.is_text()) cursor.skip(1);  // exactly one white space, as samples may look like one
  return header;
}

// To 8 bits, rounded to nearest.
uint8_t scaled(uint32_t sample, uint32_t most) {
  return static_cast<uint8_t>((std::min(sample, most) * 255 + most / 2) / most);
}

void put_gray(uint8_t* target, uint8_t value) { std::fill_n(target, 3, value); }

Result<void> read_text(Cursor& cursor, const Header& header, Image& image) {
  for (size_t i = 0; i < image.pixels.size(); i += 4 - header.channels()) {
    const auto sample = header.is_bitmap() ? cursor.bit() : cursor.number();
    if (!sample) return ends_or(cursor, "a sample is not a number");
    const uint8_t value = scaled(header.is_bitmap() ? 1 - *sample : *sample, header.most);
    if (header.channels() == 3) {
      image.pixels[i] = value;
    } else {
      put_gray(&image.pixels[i], value);
    }
  }
  return {};
}

void read_binary(const uint8_t* source, const Header& header, Image& image) {
  const size_t sample_bytes = header.most > 255 ? 2 : 1;
  for (size_t i = 0; i < image.pixels.size(); i += 4 - header.channels(), source += sample_bytes) {
    const uint8_t value = scaled(sample_bytes == 2 ? source[0] * 256u + source[1] : source[0], header.most);
    if (header.channels() == 3) {
      image.pixels[i] = value;
    } else {
      put_gray(&image.pixels[i], value);
    }
  }
}

void read_bits(const uint8_t* source, Image& image) {
  const size_t row_bytes = (static_cast<size_t>(image.size.width) + 7) / 8;
  for (int y = 0; y < image.size.height; ++y, source += row_bytes) {
    for (int x = 0; x < image.size.width; ++x) {
      const bool black = (source[x / 8] >> (7 - x % 8) & 1) != 0;
      put_gray(image.row(y) + 3 * static_cast<size_t>(x), black ? 0 : 255);
    }
  }
}

}  // namespace

Result<Decoded> decode_pnm(std::span<const std::byte> bytes, const ImageLimits& limits) {
  Cursor cursor(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  const Header header = TRY(read_header(cursor, limits));
  const auto width = static_cast<size_t>(header.size.width), height = static_cast<size_t>(header.size.height);
  const size_t samples = width * height * header.channels();
  size_t needed = samples;  // bytes; a sample of text has at least one
  if (header.kind == '4') needed = (width + 7) / 8 * height;
  if (!header.is_text() && header.most > 255) needed = 2 * samples;
  if (cursor.rest().size() < needed) return damaged(kFormat, kEndsTooEarly);
  Decoded decoded{Image(header.size)};
  if (header.is_text()) {
    TRY(read_text(cursor, header, decoded.image));
  } else if (header.kind == '4') {
    read_bits(cursor.rest().data(), decoded.image);
  } else {
    read_binary(cursor.rest().data(), header, decoded.image);
  }
  return decoded;
}

}  // namespace nanomind
