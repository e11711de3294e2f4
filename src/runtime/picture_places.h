// SPDX-License-Identifier: Apache-2.0
// Puts pictures into a prompt that a template writes: each leaves a mark in the text that the template is given, and in
// the finished text what stands for it takes the mark's place.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nanomind {

class PicturePlaces {
 public:
  // The pictures of the messages, before their contents.
  explicit PicturePlaces(std::span<const Message> messages);
  // What the template is to be given.
  std::span<const Message> messages() const { return messages_; }
  // Tokens of the text that it made of this, with the pictures where they belong. Text and the markers beside it are
  // read as one, with control tokens recognised. A template that drops a message drops its pictures.
  std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, Beginning beginning) const;

 private:
  // `text` as the parts that it is with the pictures in it.
  PicturePrompt insert(std::string_view text) const;

  std::vector<Message> messages_;
  std::vector<PicturePrompt> pictures_;
  std::string mark_;  // stands in no message
};

}  // namespace nanomind
