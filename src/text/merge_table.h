// SPDX-License-Identifier: Apache-2.0
// The merges of a BPE vocabulary by the ids of both sides: an open-addressed table, since it has as many entries as the
// vocabulary and is asked for every character of the text.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/merge_list.h"
#include "text/vocabulary.h"

namespace nanomind {

// Ids by their spelling; views into the vocabulary.
using TokenIds = std::unordered_map<std::string_view, TokenId>;

// Of equal spellings the first counts.
TokenIds index_tokens(const Vocabulary& vocabulary);

class MergeTable {
 public:
  // Merges that would make a control token are left out. The vocabulary is valid. Errors: merges that are not pairs, or
  // that use pieces which are not in the vocabulary.
  static Result<MergeTable> create(const Vocabulary& vocabulary, const TokenIds& ids);

  std::optional<Merge> find(TokenId left, TokenId right) const {
    const Slot& slot = slots_[find_slot(left, right)];
    if (slot.left == kEmpty) return std::nullopt;
    return slot.merge;
  }

 private:
  static constexpr TokenId kEmpty = -1;

  struct Slot {
    TokenId left = kEmpty;
    TokenId right = kEmpty;
    Merge merge;
  };

  explicit MergeTable(size_t count)
      : slots_(std::bit_ceil(count * 2 + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

  // Of equal pairs the first counts.
  void add(TokenId left, TokenId right, Merge merge) {
    Slot& slot = slots_[find_slot(left, right)];
    if (slot.left == kEmpty) slot = {left, right, merge};
  }

  // The slot of the pair, or the empty one where it would go; more than half of the slots are empty.
  size_t find_slot(TokenId left, TokenId right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    size_t i = key * 0x9e3779b97f4a7c15u >> shift_;  // Fibonacci hashing
    while (slots_[i].left != kEmpty && (slots_[i].left != left || slots_[i].right != right)) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return i;
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace nanomind
