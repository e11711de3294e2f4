// SPDX-License-Identifier: Apache-2.0
// Steps through bytes that may or may not be UTF-8 (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF).
#pragma once

#include <cstddef>
#include <string_view>

namespace nanomind {

enum class Utf8Kind {
  valid,       // `length` bytes are one encoded code point
  invalid,     // `length` bytes are one maximal subpart of an ill-formed sequence; never 0
  incomplete,  // the text ends within a sequence that is well-formed so far
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::invalid;
  size_t length = 0;
};

// The sequence that begins at `position`; position < text.size().
Utf8Step next_utf8(std::string_view text, size_t position);

// Length of the longest prefix of text.substr(position) that is valid UTF-8.
size_t valid_utf8_length(std::string_view text, size_t position);

}  // namespace nanomind
