// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <cstdint>

namespace nanomind {
namespace {

struct Lead {
  size_t length;              // of the whole sequence; 0: no sequence begins with this byte
  uint8_t second_min = 0x80;  // what the second byte may be (Unicode 15, table 3-7)
  uint8_t second_max = 0xbf;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xc2) return {0};
  if (byte < 0xe0) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0};
}

}  // namespace

Utf8Step next_utf8(std::string_view text, size_t position) {
  const Lead lead = classify(static_cast<uint8_t>(text[position]));
  if (lead.length == 0) return {Utf8Kind::invalid, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (position + i == text.size()) return {Utf8Kind::incomplete, i};
    const auto byte = static_cast<uint8_t>(text[position + i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xbf;
    if (byte < min || byte > max) return {Utf8Kind::invalid, i};
  }
  return {Utf8Kind::valid, lead.length};
}

size_t valid_utf8_length(std::string_view text, size_t position) {
  const size_t begin = position;
  while (position < text.size()) {
    const Utf8Step step = next_utf8(text, position);
    if (step.kind != Utf8Kind::valid) break;
    position += step.length;
  }
  return position - begin;
}

}  // namespace nanomind
