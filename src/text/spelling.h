// SPDX-License-Identifier: Apache-2.0
// How vocabularies of SentencePiece spell a space, and vocabularies of WordPiece in GGUF files the beginning of a word.
#pragma once

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

}  // namespace nanomind
