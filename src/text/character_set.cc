// SPDX-License-Identifier: Apache-2.0
#include "text/character_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr uint32_t kLastCodePoint = 0x10FFFF;

}  // namespace

void CharacterSet::add(uint32_t first, uint32_t last) {
  // Those that overlap or touch the new range become part of it.
  const auto from = std::ranges::find_if(ranges_, [&](const Range& range) { return range.last + 1 >= first; });
  auto to = from;
  for (; to != ranges_.end() && to->first <= last + 1; ++to) {
    first = std::min(first, to->first);
    last = std::max(last, to->last);
  }
  ranges_.insert(ranges_.erase(from, to), {first, last});
}

void CharacterSet::add(const CharacterSet& other) {
  for (const Range& range : other.ranges_) add(range.first, range.last);
}

CharacterSet CharacterSet::complement() const {
  CharacterSet rest;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.ranges_.push_back({next, kLastCodePoint});
  return rest;
}

bool CharacterSet::intersects(const CharacterSet& other) const {
  return std::ranges::any_of(ranges_, [&](const Range& a) {
    return std::ranges::any_of(other.ranges_, [&](const Range& b) { return a.first <= b.last && b.first <= a.last; });
  });
}

std::string CharacterSet::expression() const {
  std::string out = "[";
  for (const Range& range : ranges_) {
    out += fmt::format("\\x{{{:X}}}", range.first);
    if (range.last > range.first) out += fmt::format("-\\x{{{:X}}}", range.last);
  }
  return out + "]";
}

void append_utf8(std::string& out, uint32_t point) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F)), put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

uint32_t first_character(std::string_view text) {
  const size_t length = next_utf8(text, 0).length;
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  uint32_t point = length == 1 ? byte(0) : byte(0) & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) point = point << 6 | (byte(i) & 0x3F);
  return point;
}

}  // namespace nanomind
