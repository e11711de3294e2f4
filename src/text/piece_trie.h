// SPDX-License-Identifier: Apache-2.0
// A fixed set of spellings, asked which of them a text begins with. Built once, small, thread-safe afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace nanomind {

class PieceTrie {
 public:
  // Spellings with their ids, in any order; empty ones are ignored, of equal ones the lowest id counts.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces);

  // Calls visit(size in bytes, id) for every spelling that `text` begins with, shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, const Visit& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id != kNone) visit(i + 1, nodes_[node].id);
    }
  }

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    int32_t id = kNone;        // of the spelling that ends here
    uint32_t first_child = 0;  // children are neighbours, sorted by their byte
    uint16_t children = 0;
    uint8_t byte = 0;  // the last byte of what leads here
  };

  // 0: there is none; the root is nobody's child.
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
};

}  // namespace nanomind
