// SPDX-License-Identifier: Apache-2.0
#include "media/image_format.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace nanomind {
namespace {

using namespace std::string_view_literals;

struct Signature {
  size_t offset;
  std::string_view magic;
  ImageFormat format;
};

constexpr Signature kSignatures[] = {
    {0, "\xFF\xD8\xFF"sv, ImageFormat::jpeg},
    {0, "\x89PNG\r\n\x1A\n"sv, ImageFormat::png},
    {8, "WEBP"sv, ImageFormat::webp},  // after "RIFF" and a length
    {0, "GIF87a"sv, ImageFormat::gif},
    {0, "GIF89a"sv, ImageFormat::gif},
    {0, "BM"sv, ImageFormat::bmp},
    {0, "II*\0"sv, ImageFormat::tiff},
    {0, "MM\0*"sv, ImageFormat::tiff},
    {0, "II+\0"sv, ImageFormat::tiff},
    {0, "MM\0+"sv, ImageFormat::tiff},
    {0, "\xFF\x0A"sv, ImageFormat::jpeg_xl},
    {0, "\0\0\0\x0CJXL \r\n\x87\n"sv, ImageFormat::jpeg_xl},
    {0, "\0\0\0\x0CjP  \r\n\x87\n"sv, ImageFormat::jpeg_2000},
    {0, "\xFF\x4F\xFF\x51"sv, ImageFormat::jpeg_2000},
    {0, "\0\0\1\0"sv, ImageFormat::icon},
    {0, "8BPS"sv, ImageFormat::photoshop},
    {0, "%PDF-"sv, ImageFormat::pdf},
};

// ISO media files begin with a box of brands: the main one at 8, compatible ones from 16 on.
ImageFormat sniff_brands(std::string_view head) {
  static constexpr std::string_view kHeic[] = {"heic", "heix", "hevc", "hevx", "heim", "heis", "hevm", "hevs"};
  if (head.substr(4, 4) != "ftyp") return ImageFormat::unknown;
  bool any_heif = false;
  for (size_t at = 8; at + 4 <= std::min<size_t>(head.size(), 64); at += at == 8 ? 8 : 4) {
    const std::string_view brand = head.substr(at, 4);
    if (brand == "avif" || brand == "avis") return ImageFormat::avif;
    if (std::ranges::find(kHeic, brand) != std::end(kHeic)) return ImageFormat::heic;
    any_heif = any_heif || brand == "mif1" || brand == "msf1";
  }
  return any_heif ? ImageFormat::heic : ImageFormat::unknown;
}

ImageFormat sniff_markup(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const size_t start = head.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || head[start] != '<') return ImageFormat::unknown;
  std::string text(head.substr(start));
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.starts_with("<!doctype html") || text.starts_with("<html")) return ImageFormat::html;
  return text.find("<svg") != std::string::npos ? ImageFormat::svg : ImageFormat::unknown;
}

}  // namespace

ImageFormat sniff(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 4096));
  for (const Signature& s : kSignatures) {
    if (s.offset + s.magic.size() > head.size() || head.substr(s.offset, s.magic.size()) != s.magic) continue;
    if (s.format != ImageFormat::webp || head.starts_with("RIFF")) return s.format;
  }
  if (head.size() >= 3 && head[0] == 'P' && head[1] >= '1' && head[1] <= '6' &&
      (head[2] == '#' || std::isspace(static_cast<unsigned char>(head[2])))) {
    return ImageFormat::pnm;
  }
  if (head.size() >= 12) {
    if (const ImageFormat format = sniff_brands(head); format != ImageFormat::unknown) return format;
  }
  return sniff_markup(head);
}

std::string_view format_name(ImageFormat format) {
  switch (format) {
    case ImageFormat::unknown: return "unknown";
    case ImageFormat::jpeg: return "JPEG";
    case ImageFormat::png: return "PNG";
    case ImageFormat::webp: return "WebP";
    case ImageFormat::gif: return "GIF";
    case ImageFormat::bmp: return "BMP";
    case ImageFormat::pnm: return "PPM";
    case ImageFormat::heic: return "HEIC";
    case ImageFormat::avif: return "AVIF";
    case ImageFormat::tiff: return "TIFF";
    case ImageFormat::svg: return "SVG";
    case ImageFormat::jpeg_xl: return "JPEG XL";
    case ImageFormat::jpeg_2000: return "JPEG 2000";
    case ImageFormat::icon: return "ICO";
    case ImageFormat::photoshop: return "Photoshop";
    case ImageFormat::pdf: return "PDF";
    case ImageFormat::html: return "HTML";
  }
  return "unknown";
}

}  // namespace nanomind
