// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "models/vision.h"

namespace nanomind {
namespace {

// Ends a mark, after the picture's number.
constexpr char kMarkEnd = ']';

void append_marker(std::string_view marker, size_t number, std::string& text) {
  for (size_t at; (at = marker.find(kPictureNumber)) != std::string_view::npos;) {
    text += marker.substr(0, at);
    text += std::to_string(number);
    marker.remove_prefix(at + kPictureNumber.size());
  }
  text += marker;
}

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
    for (PicturePrompt& picture : message.pictures) {
      marks += fmt::format("{}{}{}", mark_, pictures_.size(), kMarkEnd);
      pictures_.push_back(std::move(picture));
    }
    message.content.insert(0, marks);
  }
}

PicturePrompt PicturePlaces::insert(std::string_view text) const {
  PicturePrompt parts(1);
  for (;;) {
    const size_t at = pictures_.empty() ? std::string_view::npos : text.find(mark_);
    parts.back().text += text.substr(0, at);
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + mark_.size());
    size_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<size_t>(read.ptr - text.data()) + 1);
    CHECK(number < pictures_.size());
    for (const PicturePart& part : pictures_[number]) {
      append_marker(part.text, number, parts.back().text);
      if (part.rows.empty()) continue;
      parts.back().rows = part.rows;
      parts.emplace_back();
    }
  }
}

std::vector<TokenId> PicturePlaces::encode(const Tokenizer& tokenizer, std::string_view text,
                                           Beginning beginning) const {
  std::vector<TokenId> tokens;
  for (const PicturePart& part : insert(text)) {
    if (!part.text.empty()) {
      const std::vector<TokenId> more = tokenizer.encode(part.text, ControlTokens::recognise, beginning);
      tokens.insert(tokens.end(), more.begin(), more.end());
      beginning = Beginning::omit;
    }
    tokens.insert(tokens.end(), part.rows.begin(), part.rows.end());
  }
  return tokens;
}

}  // namespace nanomind
