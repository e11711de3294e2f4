// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"

namespace nanomind {
namespace {

// Ends a mark, after the picture's number.
constexpr char kMarkEnd = ']';

}  // namespace

PicturePlaces::PicturePlaces(std::span<const Message> messages) : messages_(messages.begin(), messages.end()) {
  const auto used = [&] {
    return std::ranges::any_of(messages_, [&](const Message& m) { return m.content.find(mark_) != std::string::npos; });
  };
  int attempt = 0;
  do {
    mark_ = fmt::format("[picture-{}:", attempt++);
  } while (used());
  for (Message& message : messages_) {
    std::string marks;
    for (std::vector<TokenId>& picture : message.pictures) {
      marks += fmt::format("{}{}{}", mark_, pictures_.size(), kMarkEnd);
      pictures_.push_back(std::move(picture));
    }
    message.content.insert(0, marks);
  }
}

std::vector<TokenId> PicturePlaces::encode(const Tokenizer& tokenizer, std::string_view text,
                                           Beginning beginning) const {
  std::vector<TokenId> tokens;
  const auto append = [&](std::string_view piece) {
    if (piece.empty()) return;
    const std::vector<TokenId> more = tokenizer.encode(piece, ControlTokens::recognise, beginning);
    tokens.insert(tokens.end(), more.begin(), more.end());
    beginning = Beginning::omit;
  };
  for (;;) {
    const size_t at = pictures_.empty() ? std::string_view::npos : text.find(mark_);
    append(text.substr(0, at));
    if (at == std::string_view::npos) return tokens;
    text.remove_prefix(at + mark_.size());
    size_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<size_t>(read.ptr - text.data()) + 1);
    CHECK(number < pictures_.size());
    const std::vector<TokenId>& picture = pictures_[number];
    tokens.insert(tokens.end(), picture.begin(), picture.end());
  }
}

}  // namespace nanomind
