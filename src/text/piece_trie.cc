// SPDX-License-Identifier: Apache-2.0
#include "text/piece_trie.h"

#include <algorithm>

namespace nanomind {

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  std::erase_if(pieces, [](const auto& piece) { return piece.first.empty(); });
  std::ranges::sort(pieces);
  // Which pieces pass through a node, and how long the way to it is; nodes are completed in the order of their number.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, pieces.size(), 0}};
  nodes_.emplace_back();
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && pieces[begin].first.size() == depth; ++begin) {
      if (nodes_[node].id == kNone) nodes_[node].id = pieces[begin].second;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = pieces[begin].first[depth];
      size_t next = begin;
      while (next < end && pieces[next].first[depth] == byte) ++next;
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].children;
      begin = next;
    }
  }
}

uint32_t PieceTrie::child(uint32_t node, uint8_t byte) const {
  const auto first = nodes_.begin() + nodes_[node].first_child;
  const auto last = first + nodes_[node].children;
  const auto found = std::lower_bound(first, last, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return found == last || found->byte != byte ? 0 : static_cast<uint32_t>(found - nodes_.begin());
}

}  // namespace nanomind
