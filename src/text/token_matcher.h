// SPDX-License-Identifier: Apache-2.0
// Finds the first of a set of fixed spellings in a text, the longest where several begin at the same byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nanomind {

class TokenMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = 0;
  };

  TokenMatcher();

  // Empty spellings are ignored; of equal ones the first counts.
  void add(std::string_view spelling, int32_t id);

  // The leftmost match at or after `position`. Time: length of the text times length of the longest spelling at worst.
  std::optional<Match> find(std::string_view text, size_t position) const;

 private:
  static constexpr int32_t kNone = -1;

  // A trie: edges_[node << 8 | byte] is the next node, ids_[node] the spelling that ends there.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> ids_;
  std::array<bool, 256> starts_{};  // bytes that begin a spelling
};

}  // namespace nanomind
