// SPDX-License-Identifier: Apache-2.0
// Puts pictures into a prompt that a template writes. Where a template writes something for each picture, what stands
// for the picture takes its place; else each picture leaves a mark in the text that the template is given. What a
// person writes is text, even where it reads like either.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace nanomind {

class PicturePlaces {
 public:
  // The pictures of the messages, before their contents.
  explicit PicturePlaces(std::span<const Message> messages);
  // The text that a template makes of the messages, in any order of roles, with marks where pictures belong. Errors:
  // those of ChatTemplate::render; unsupported when the template drops a message that has pictures.
  Result<std::string> render(const ChatTemplate& chat_template, const TemplateOptions& options) const;
  // Tokens of such a text, with the pictures where they belong. Text and the markers beside it are read as one, with
  // control tokens recognised, but not those that a person wrote to mean a picture.
  std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, Beginning beginning) const;

 private:
  std::string mark(size_t number) const;
  std::string with_marks(std::string_view content);
  // The text with marks for what the template wrote for each picture; empty when that is not one for each.
  std::string replace_placeholders(std::string_view text) const;

  std::vector<Message> messages_;          // with marks for placeholders that a person wrote
  std::vector<PicturePrompt> pictures_;    // of marks 0, 1, ...,
  std::vector<std::string_view> written_;  // and after them such placeholders
  std::string mark_;                       // stands in no message
};

}  // namespace nanomind
