// SPDX-License-Identifier: Apache-2.0
// Bytes as text (RFC 4648, the common alphabet, padded).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nanomind {

std::string base64(std::span<const std::byte> bytes);
// Nothing for what is not base64: another character, a missing digit or padding.
std::optional<std::vector<std::byte>> base64_bytes(std::string_view text);

}  // namespace nanomind
