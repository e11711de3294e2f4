// SPDX-License-Identifier: Apache-2.0
// The loop that both kinds of BPE share: repeatedly merge the best pair of neighbours, O(n log n) for n symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace nanomind {

// A stretch of text that is one token, or a candidate for one; `size` 0: merged into its left neighbour.
struct Symbol {
  size_t offset = 0;  // bytes from the beginning of the text
  size_t size = 0;    // bytes
  int32_t id = 0;     // may be negative: no token yet; never merged by id
};

// What two neighbours become. Lower ranks merge first; of equal ranks the leftmost.
struct Merge {
  double rank = 0;
  int32_t id = 0;
};

// Merges in place until no two neighbours merge. `lookup(const Symbol& left, const Symbol& right)` answers
// std::optional<Merge>. Symbols that were merged away keep size 0.
template <typename Lookup>
void merge_all(std::span<Symbol> symbols, const Lookup& lookup) {
  struct Candidate {
    double rank;
    size_t left, right;  // indices of the symbols
    size_t merged_size;  // bytes of both when this was found; differs later when one of them has grown or gone
    int32_t id;
    bool operator<(const Candidate& other) const {  // for a queue whose top is the greatest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const size_t none = symbols.size();
  std::vector<size_t> previous(symbols.size()), next(symbols.size());
  std::vector<Candidate> candidates;
  const auto consider = [&](size_t left, size_t right, auto&& push) {
    if (left == none || right == none) return;
    if (const std::optional<Merge> merge = lookup(symbols[left], symbols[right])) {
      push(Candidate{merge->rank, left, right, symbols[left].size + symbols[right].size, merge->id});
    }
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    previous[i] = i == 0 ? none : i - 1;
    next[i] = i + 1;
    if (i > 0) consider(i - 1, i, [&](const Candidate& candidate) { candidates.push_back(candidate); });
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(candidates));
  const auto push = [&](const Candidate& candidate) { queue.push(candidate); };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.merged_size) continue;
    left.size = best.merged_size;
    left.id = best.id;
    right.size = 0;
    next[best.left] = next[best.right];
    if (next[best.left] != none) previous[next[best.left]] = best.left;
    consider(previous[best.left], best.left, push);
    consider(best.left, next[best.left], push);
  }
}

}  // namespace nanomind
