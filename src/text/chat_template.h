// SPDX-License-Identifier: Apache-2.0
// Renders the Jinja chat template that a model's file carries. Steps, recursion and output size are bounded, because
// the template comes from the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nanomind {

// What stands in a prompt for a picture: markers, which are text with control tokens, and tokens below 0 for its rows.
struct PicturePart {
  std::string text;
  std::vector<int32_t> rows;
};
using PicturePrompt = std::vector<PicturePart>;

struct Message {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::vector<PicturePrompt> pictures{};  // that stand before the content
  // May be empty: then the template does not see them.
  std::string reasoning{};     // what an assistant thought; most templates leave it out
  std::string tool_calls{};    // JSON list of an assistant's calls, as OpenAI has them or of {"name", "arguments"}
  std::string tool_call_id{};  // of a tool's result
  std::string name{};          // of the tool
};

// How a template takes the content of a message: as a text, as a list of parts ({"type": "image"}, {"type": "text",
// "text": ...}; SmolVLM), or as either.
enum class ContentForm : uint8_t { text, parts, either };

struct TemplateOptions {
  std::string_view bos_token;  // spelling, may be empty
  std::string_view eos_token;
  enum class Prompt { generation, none } prompt = Prompt::generation;  // append the assistant's opening
  std::string_view tools = {};                                         // JSON list as OpenAI has it; empty: none
  std::optional<bool> thinking = {};                                   // enable_thinking; absent: the template's choice
};

class ChatTemplate {
 public:
  // Compiles the template and tries it, to learn its form of contents; the error quotes the line that failed.
  static Result<ChatTemplate> parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  ContentForm content_form() const { return form_; }

  // The prompt text; control tokens in it are to be recognised by the tokenizer. `raise_exception` of a template
  // becomes the error's message. Tools and calls that are no JSON lists are errors; arguments of a call may be anything
  // (a text is handed on as it is). Of pictures a template sees only that they are there, as parts before the text:
  // where it takes parts it writes something of its own for each, else nothing.
  Result<std::string> render(std::span<const Message> messages, const TemplateOptions& options) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  bool lets_through(ContentForm form) const;
  Result<std::string> render(std::span<const Message> messages, const TemplateOptions& options, ContentForm form) const;

  std::unique_ptr<Impl> impl_;
  ContentForm form_ = ContentForm::text;
};

}  // namespace nanomind
