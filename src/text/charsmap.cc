// SPDX-License-Identifier: Apache-2.0
#include "text/charsmap.h"

#include <bit>
#include <cstring>

#include "text/utf8.h"

namespace nanomind {
namespace {

// One unit of a darts-clone double array. A child's index is the parent's offset, exclusive or its label.
class Unit {
 public:
  explicit Unit(uint32_t bits) : bits_(bits) {}
  bool has_value() const { return bits_ >> 8 & 1; }
  uint32_t value() const { return bits_ & 0x7fffffff; }
  uint32_t label() const { return bits_ & 0x800000ff; }  // units that hold a value have a label that no byte equals
  uint32_t offset() const { return bits_ >> 10 << ((bits_ & 1u << 9) >> 6); }

 private:
  uint32_t bits_;
};

}  // namespace

Result<Charsmap> Charsmap::create(std::span<const std::byte> table) {
  static_assert(std::endian::native == std::endian::little);
  Charsmap map;
  if (table.empty()) return map;
  uint32_t size = 0;
  if (table.size() >= sizeof(size)) std::memcpy(&size, table.data(), sizeof(size));
  if (table.size() < sizeof(size) + size || size == 0 || size % sizeof(uint32_t) != 0) {
    return fail(ErrorCode::corrupt, "The tokenizer's table of replacements (precompiled_charsmap) is truncated.");
  }
  map.trie_.resize(size / sizeof(uint32_t));
  std::memcpy(map.trie_.data(), table.data() + sizeof(size), size);
  const auto texts = table.subspan(sizeof(size) + size);
  map.replacements_.assign(reinterpret_cast<const char*>(texts.data()), texts.size());
  if (!map.replacements_.empty() && map.replacements_.back() != '\0') map.replacements_ += '\0';
  return map;
}

Charsmap::Replacement Charsmap::find(std::string_view text) const {
  Replacement longest;
  if (trie_.empty()) return longest;
  // Broken tables may point anywhere; what lies outside is no match.
  uint32_t node = Unit(trie_[0]).offset();
  for (size_t i = 0; i < text.size(); ++i) {
    node ^= static_cast<uint8_t>(text[i]);
    if (node >= trie_.size()) break;
    const Unit unit(trie_[node]);
    if (unit.label() != static_cast<uint8_t>(text[i])) break;
    node ^= unit.offset();
    if (node >= trie_.size()) break;
    if (!unit.has_value()) continue;
    const uint32_t begin = Unit(trie_[node]).value();
    if (begin < replacements_.size()) longest = {i + 1, replacements_.c_str() + begin};
  }
  return longest;
}

Charsmap::Replacement Charsmap::replace_first(std::string_view text) const {
  const Replacement found = find(text);
  if (found.size > 0) return found;
  const Utf8Step step = next_utf8(text, 0);
  if (step.kind == Utf8Kind::valid) return {step.length, text.substr(0, step.length)};
  return {1, "\xef\xbf\xbd"};
}

}  // namespace nanomind
