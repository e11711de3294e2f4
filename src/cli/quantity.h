// SPDX-License-Identifier: Apache-2.0
// Numbers as people type and read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nanomind {

// "2G", "512MiB" and "1.5g" are binary, "2GB" is decimal, a bare number is bytes.
Result<uint64_t> parse_bytes(std::string_view text);

// "491 MB", "1.12 GB": decimal, three digits.
std::string format_bytes(uint64_t bytes);

// "5s", "500ms", "2m", "1h"; a bare number is seconds. From nothing to 30 days.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

// "7 s", "3 min 20 s", "2 h 5 min".
std::string format_seconds(double seconds);

Result<int64_t> parse_integer(std::string_view text, int64_t smallest, int64_t largest);
Result<double> parse_number(std::string_view text);

}  // namespace nanomind
