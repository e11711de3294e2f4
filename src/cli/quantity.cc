// SPDX-License-Identifier: Apache-2.0
#include "cli/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace nanomind {
namespace {

// Bytes of a unit, 0 when it is none.
double unit_bytes(std::string_view unit) {
  if (unit.empty()) return 1;
  std::string lower(unit);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (lower == "b") return 1;
  const size_t power = std::string_view("kmgt").find(lower[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(lower).substr(1);
  if (rest == "b") return std::pow(1000.0, static_cast<double>(power + 1));
  return rest.empty() || rest == "ib" || rest == "i" ? std::pow(1024.0, static_cast<double>(power + 1)) : 0;
}

// Milliseconds of a unit, 0 when it is none.
double unit_ms(std::string_view unit) {
  if (unit == "ms") return 1;
  if (unit.empty() || unit == "s") return 1000;
  if (unit == "m" || unit == "min") return 60'000;
  return unit == "h" ? 3'600'000 : 0;
}

}  // namespace

Result<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return fail(ErrorCode::invalid_argument, fmt::format("'{}' is not a number.", text));
  }
  return value;
}

Result<int64_t> parse_integer(std::string_view text, int64_t smallest, int64_t largest) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < smallest || value > largest) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is not a whole number from {} to {}.", text, smallest, largest));
  }
  return value;
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto number = parse_number(text.substr(0, digits));
  constexpr double kMost = 30.0 * 24 * 3'600'000;
  const double ms = number ? *number * unit_ms(unit) : -1;
  if (ms < 0 || ms > kMost || unit_ms(unit) == 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is not a time up to 30 days; write it like 5s, 500ms, 2m or 1h.", text));
  }
  return std::chrono::milliseconds(std::llround(ms));
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto number = parse_number(text.substr(0, digits));
  const double bytes = number ? *number * unit_bytes(unit) : 0;
  if (!(bytes >= 1) || bytes > 9e18) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is not an amount of memory; write it like 2G, 512M or 800MB.", text));
  }
  return static_cast<uint64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  const auto whole = static_cast<int64_t>(std::min(std::ceil(seconds), 1e9));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace nanomind
