// SPDX-License-Identifier: Apache-2.0
// Renders the Jinja chat template that a model's file carries. Steps, recursion and output size are bounded, because
// the template comes from the file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nanomind {

struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct TemplateOptions {
  std::string_view bos_token;  // spelling, may be empty
  std::string_view eos_token;
  enum class Prompt { generation, none } prompt = Prompt::generation;  // append the assistant's opening
};

class ChatTemplate {
 public:
  // Compiles the template; the error quotes the line that failed.
  static Result<ChatTemplate> parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The prompt text; control tokens in it are to be recognised by the tokenizer. `raise_exception` of a template
  // becomes the error's message.
  Result<std::string> render(std::span<const Message> messages, const TemplateOptions& options) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanomind
