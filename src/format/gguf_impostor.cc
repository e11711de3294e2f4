// SPDX-License-Identifier: Apache-2.0
#include "format/gguf_impostor.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>

namespace nanomind {
namespace {

constexpr size_t kFixedHeaderBytes = 24;  // magic, version, two counts

struct Signature {
  std::string_view magic;
  std::string_view message;  // continues the sentence that the file's name began
};

constexpr std::string_view kLegacy =
    " is a model in the old GGML format from before GGUF (2023), which is no longer read. Download the GGUF version of "
    "this model.";
constexpr std::string_view kPickle =
    " is a Python pickle (a PyTorch checkpoint), which is not read because it can run code. Download the GGUF version "
    "of "
    "this model.";

constexpr Signature kSignatures[] = {
    {"version https://git-lfs",
     " is a Git LFS pointer, a small text that stands for the model, not the model itself. Run `git lfs pull` in its "
     "folder, or download the file from its download link."},
    {std::string_view("PK\x03\x04", 4),
     " is a ZIP archive (possibly a PyTorch checkpoint), not a GGUF model. Download the GGUF version of this model, or "
     "unpack the archive if the model is inside it."},
    {std::string_view("\x80\x02", 2), kPickle},
    {std::string_view("\x80\x03", 2), kPickle},
    {std::string_view("\x80\x04", 2), kPickle},
    {std::string_view("\x80\x05", 2), kPickle},
    {"lmgg", kLegacy},
    {"fmgg", kLegacy},
    {"tjgg", kLegacy},
    {"algg", kLegacy},
    {std::string_view("\x1f\x8b", 2), " is compressed with gzip. Unpack it first: the model is the file inside it."},
    {std::string_view("\xfd"
                      "7zXZ",
                      5),
     " is compressed with xz. Unpack it first: the model is the file inside it."},
    {std::string_view("\x28\xb5\x2f\xfd", 4),
     " is compressed with zstd. Unpack it first: the model is the file inside it."},
    {"FUGG", " is a GGUF file in big-endian byte order, which is not read. Download the little-endian version."},
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
T read_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  return std::equal(prefix.begin(), prefix.end(), text.begin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

bool is_web_page(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  text.remove_prefix(start);
  for (std::string_view prefix : {"<!doctype", "<html", "<head", "<body", "<?xml", "<!--"}) {
    if (starts_with_ignoring_case(text, prefix)) return true;
  }
  return false;
}

bool is_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 10) return false;
  const auto header = read_at<uint64_t>(bytes, 0);
  return header >= 2 && header < (uint64_t{1} << 32) && static_cast<char>(bytes[8]) == '{';
}

bool is_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

std::optional<Error> check_version(std::span<const std::byte> bytes, const std::string& name) {
  const auto version = read_at<uint32_t>(bytes, 4);
  const auto swapped = __builtin_bswap32(version);
  if (version == 2 || version == 3) return std::nullopt;
  if (version == 1) {
    return Error{ErrorCode::unsupported,
                 name + " is a GGUF file of version 1, which is too old. Download a newer conversion of this model."};
  }
  if (version != 0 && swapped <= 0xFFFF && version > 0xFFFF) {
    return Error{
        ErrorCode::unsupported,
        name + " is a GGUF file in big-endian byte order, which is not read. Download the little-endian version."};
  }
  if (version > 3 && version <= 0xFFFF) {
    return Error{ErrorCode::unsupported, name + " is a GGUF file of version " + std::to_string(version) +
                                             ", which is newer than this program knows (2 and 3). Update the program."};
  }
  return Error{ErrorCode::corrupt, name + " starts like a GGUF file but has the impossible version " +
                                       std::to_string(version) + ". The file is damaged: download it again."};
}

std::optional<Error> identify(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view start = as_text(bytes.first(std::min<size_t>(bytes.size(), 512)));
  for (const Signature& s : kSignatures) {
    if (start.starts_with(s.magic)) return Error{ErrorCode::unsupported, name + std::string(s.message)};
  }
  if (is_web_page(start)) {
    return Error{ErrorCode::corrupt,
                 name +
                     " is a web page (HTML), not a model: the address led to a page instead of the file. Download it "
                     "again from the file's direct download link, and log in first if the model asks for it."};
  }
  if (is_safetensors(bytes)) {
    return Error{ErrorCode::unsupported,
                 name +
                     " is a safetensors file, not GGUF. Convert it with `nanomind convert`, or download the GGUF "
                     "version of this model."};
  }
  if (std::all_of(start.begin(), start.end(), [](char c) { return c == 0; })) {
    return Error{ErrorCode::corrupt,
                 name + " begins with zeros: its download was not finished. Finish it or download it again."};
  }
  if (is_text(start)) {
    return Error{ErrorCode::corrupt, name + " is a text (\"" + printable(start) +
                                         "\"), not a model. Download it again from the file's direct download link."};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> find_impostor(std::span<const std::byte> bytes, std::string_view subject) {
  const std::string name(subject);
  if (bytes.empty()) {
    return Error{ErrorCode::corrupt,
                 name + " is empty (0 bytes): a download failed or the disk was full. Download it again."};
  }
  if (as_text(bytes).starts_with("GGUF")) {
    if (bytes.size() < kFixedHeaderBytes) {
      return Error{ErrorCode::corrupt, name + " is cut short: it has " + std::to_string(bytes.size()) +
                                           " bytes, less than the " + std::to_string(kFixedHeaderBytes) +
                                           " of a GGUF file's fixed header. Download it again."};
    }
    return check_version(bytes, name);
  }
  if (auto known = identify(bytes, name)) return known;
  return Error{ErrorCode::corrupt, name + " is not a GGUF model: it begins with \"" +
                                       printable(as_text(bytes.first(std::min<size_t>(bytes.size(), 4)))) +
                                       "\" instead of \"GGUF\". Check the path, or download the model again."};
}

std::string printable(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out(text.substr(0, kMost));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  if (text.size() > kMost) out += "...";
  return out;
}

}  // namespace nanomind
