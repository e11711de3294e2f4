// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace nanomind {
namespace {

constexpr size_t kPart = size_t{3} << 20;  // bytes at once, as lengths are int there

const unsigned char* begin_of(auto part) { return reinterpret_cast<const unsigned char*>(part.data()); }
unsigned char* place(auto& result, size_t at) { return reinterpret_cast<unsigned char*>(result.data()) + at; }

}  // namespace

std::string base64(std::span<const std::byte> bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(kPart, bytes.size()));
    const size_t written = text.size(), digits = (part.size() + 2) / 3 * 4;
    text.resize(written + digits + 1);  // it ends what it writes with NUL
    EVP_EncodeBlock(place(text, written), begin_of(part), static_cast<int>(part.size()));
    text.resize(written + digits);
    bytes = bytes.subspan(part.size());
  }
  return text;
}

std::optional<std::vector<std::byte>> base64_bytes(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t end = text.find_last_not_of('=') + 1, padding = text.size() - end;
  // EVP_DecodeBlock alone would let spaces around and padding inside pass.
  if (text.size() % 4 != 0 || padding > 2 || text.substr(0, end).find_first_not_of(kDigits) != text.npos)
    return std::nullopt;
  std::vector<std::byte> bytes;
  while (!text.empty()) {
    const auto part = text.substr(0, kPart / 3 * 4);
    const size_t written = bytes.size();
    bytes.resize(written + part.size() / 4 * 3);
    if (EVP_DecodeBlock(place(bytes, written), begin_of(part), static_cast<int>(part.size())) < 0) return std::nullopt;
    text.remove_prefix(part.size());
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace nanomind
