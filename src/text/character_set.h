// SPDX-License-Identifier: Apache-2.0
// A set of code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nanomind {

class CharacterSet {
 public:
  // Adds first to last, both included; first <= last.
  void add(uint32_t first, uint32_t last);
  void add(const CharacterSet& other);
  CharacterSet complement() const;  // of all code points
  bool empty() const { return ranges_.empty(); }
  bool intersects(const CharacterSet& other) const;
  bool operator==(const CharacterSet&) const = default;
  // As a regular expression: [\x{61}-\x{7A}].
  std::string expression() const;

 private:
  struct Range {
    uint32_t first;
    uint32_t last;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> ranges_;  // in order, none touches the next
};

// Adds a code point, at most 0x10FFFF, as UTF-8.
void append_utf8(std::string& out, uint32_t point);

// The code point that `text`, valid UTF-8 and not empty, begins with.
uint32_t first_character(std::string_view text);

}  // namespace nanomind
