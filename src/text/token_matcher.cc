// SPDX-License-Identifier: Apache-2.0
#include "text/token_matcher.h"

namespace nanomind {

TokenMatcher::TokenMatcher() : ids_{kNone} {}

void TokenMatcher::add(std::string_view spelling, int32_t id) {
  if (spelling.empty()) return;
  starts_[static_cast<uint8_t>(spelling[0])] = true;
  uint32_t node = 0;
  for (const char c : spelling) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto [next, is_new] = edges_.try_emplace(edge, static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(kNone);
    node = next->second;
  }
  if (ids_[node] == kNone) ids_[node] = id;
}

std::optional<TokenMatcher::Match> TokenMatcher::find(std::string_view text, size_t position) const {
  for (size_t begin = position; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto next = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
      if (next == edges_.end()) break;
      node = next->second;
      if (ids_[node] != kNone) longest = Match{begin, i + 1, ids_[node]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace nanomind
