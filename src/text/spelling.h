// SPDX-License-Identifier: Apache-2.0
// How vocabularies of SentencePiece spell a space (those of WordPiece in GGUF files: the beginning of a word) and
// bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nanomind {

inline constexpr std::string_view kEscapedSpace = "\xe2\x96\x81";  // U+2581

inline std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t position = 0;
  for (size_t found; (found = text.find(from, position)) != std::string_view::npos; position = found + from.size()) {
    out.append(text, position, found - position).append(to);
  }
  return out.append(text, position);
}

// The byte of a spelling such as "<0x0A>".
inline std::optional<uint8_t> parse_byte_token(std::string_view spelling) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return std::nullopt;
  const int high = digit(spelling[3]), low = digit(spelling[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

}  // namespace nanomind
