// SPDX-License-Identifier: Apache-2.0
// Says what a file is when it is not a GGUF file that we can read: a web page, another model format, an unfinished
// download.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nanomind {

// Null when `bytes` start like a little-endian GGUF v2 or v3 file of at least a fixed header; otherwise what to tell
// the user. `subject` names the file and begins the message.
std::optional<Error> find_impostor(std::span<const std::byte> bytes, std::string_view subject);

// At most 60 characters of text from a file, safe to show: other bytes than printable ASCII become '?'.
std::string printable(std::string_view text);

}  // namespace nanomind
