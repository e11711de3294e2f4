// SPDX-License-Identifier: Apache-2.0
#include "runtime/pictures.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nanomind {

std::vector<TokenId> Pictures::tokens(const Picture& picture) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < picture.count(); ++i) tokens.push_back(picture.first - static_cast<TokenId>(i));
  return tokens;
}

std::vector<TokenId> Pictures::find(const Sha256Digest& source) {
  const auto found = std::ranges::find(pictures_, source, &Picture::source);
  if (found == pictures_.end()) return {};
  pictures_.splice(pictures_.begin(), pictures_, found);
  return tokens(*found);
}

std::vector<TokenId> Pictures::add(const Sha256Digest& source, std::vector<float> rows, int64_t width) {
  const auto count = static_cast<TokenId>(static_cast<int64_t>(rows.size()) / width);
  const auto [known, is_new] = first_tokens_.try_emplace(source, next_);
  if (is_new) next_ -= count;
  bytes_ += rows.size() * sizeof(float);
  pictures_.push_front({.source = source, .rows = std::move(rows), .width = width, .first = known->second});
  by_last_token_[known->second - count + 1] = pictures_.begin();
  while (bytes_ > most_bytes_ && pictures_.size() > 1) {
    const Picture& oldest = pictures_.back();
    bytes_ -= oldest.rows.size() * sizeof(float);
    by_last_token_.erase(oldest.first - static_cast<TokenId>(oldest.count()) + 1);
    pictures_.pop_back();
  }
  return tokens(pictures_.front());
}

Result<void> Pictures::append_rows(std::span<const TokenId> tokens, std::vector<const float*>& rows) const {
  for (const TokenId token : tokens) {
    if (token >= 0) continue;
    rows.push_back(row(token));
    if (rows.back() == nullptr)
      return fail(ErrorCode::invalid_argument, "A picture of the prompt is not held any more; give it again.");
  }
  return {};
}

const float* Pictures::row(TokenId token) const {
  // The picture whose last token is the greatest that is not above this one.
  auto after = by_last_token_.upper_bound(token);
  if (after == by_last_token_.begin()) return nullptr;
  const Picture& picture = *std::prev(after)->second;
  if (token > picture.first) return nullptr;
  return picture.rows.data() + (picture.first - token) * picture.width;
}

}  // namespace nanomind
