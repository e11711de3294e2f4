// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "models/vision.h"
#include "text/message_order.h"

namespace nanomind {
namespace {

// What published templates write where a picture stands: of one that begins with another, the longer comes first.
constexpr std::string_view kPlaceholders[] = {
    "<|vision_start|><|image_pad|><|vision_end|>",  // Qwen2-VL to Qwen3.5, MiniCPM-V 4.6
    "<|begin_of_image|><|image|><|end_of_image|>",  // GLM-4.1V
    "<|image_pad|>",                                //
    "<|image|>",                                    // Llama 3.2, Gemma 4
    "(<image>./</image>)",                          // MiniCPM-V 2.6
    "<image_soft_token>",                           // Gemma 3n
    "<start_of_image>",                             // Gemma 3
    "<image>",                                      // Idefics, SmolVLM, LLaVA, LFM2-VL, PaliGemma
    "<IMG_CONTEXT>",                                // InternVL
    "[IMG]",                                        // Pixtral, Mistral Small 3.1
};

// The placeholder that `text` begins with; empty for none.
std::string_view placeholder_at(std::string_view text) {
  const auto* found = std::ranges::find_if(kPlaceholders, [&](std::string_view p) { return text.starts_with(p); });
  return found == std::end(kPlaceholders) ? std::string_view() : *found;
}

// Calls `on_placeholder` for each placeholder of `text` and `on_text` for what lies between.
template <typename OnText, typename OnPlaceholder>
void split(std::string_view text, OnText on_text, OnPlaceholder on_placeholder) {
  size_t done = 0;
  for (size_t at = 0; (at = text.find_first_of("<([", at)) != std::string_view::npos;) {
    const std::string_view placeholder = placeholder_at(text.substr(at));
    if (placeholder.empty()) {
      ++at;
      continue;
    }
    on_text(text.substr(done, at - done));
    on_placeholder(placeholder);
    done = at += placeholder.size();
  }
  on_text(text.substr(done));
}

// Ends a mark, after its number.
constexpr char kMarkEnd = ']';

// The number that `text`, which follows a mark's beginning, begins with, and removes it; absent where it is none.
std::optional<size_t> take_number(std::string_view& text) {
  size_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != kMarkEnd) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()) + 1);
  return number;
}

void append_marker(std::string_view marker, size_t number, std::string& text) {
  for (size_t at; (at = marker.find(kPictureNumber)) != std::string_view::npos;) {
    text += marker.substr(0, at);
    text += std::to_string(number);
    marker.remove_prefix(at + kPictureNumber.size());
  }
  text += marker;
}

// Tokens of texts and rows that are given one after the other.
class TokenWriter {
 public:
  TokenWriter(const Tokenizer& tokenizer, Beginning beginning) : tokenizer_(tokenizer), beginning_(beginning) {}

  std::string& text() { return text_; }
  void append_rows(std::span<const TokenId> rows) {
    flush(ControlTokens::recognise);
    tokens_.insert(tokens_.end(), rows.begin(), rows.end());
  }
  // Text in which no control tokens are recognised. Where there are none it is read together with its neighbours.
  void append_plain(std::string_view plain) {
    const auto encode = [&](ControlTokens control) { return tokenizer_.encode(plain, control, Beginning::omit); };
    if (encode(ControlTokens::recognise) == encode(ControlTokens::as_text)) {
      text_ += plain;
      return;
    }
    flush(ControlTokens::recognise);
    text_ = plain;
    flush(ControlTokens::as_text);
  }
  std::vector<TokenId> finish() && {
    flush(ControlTokens::recognise);
    return std::move(tokens_);
  }

 private:
  void flush(ControlTokens control) {
    if (text_.empty()) return;
    const std::vector<TokenId> more = tokenizer_.encode(text_, control, beginning_);
    tokens_.insert(tokens_.end(), more.begin(), more.end());
    beginning_ = Beginning::omit;
    text_.clear();
  }

  const Tokenizer& tokenizer_;
  Beginning beginning_;
  std::string text_;
  std::vector<TokenId> tokens_;
};

}  // namespace

PicturePlaces::PicturePlaces(std::span<const Message> messages) : messages_(messages.begin(), messages.end()) {
  const auto used = [&] {
    return std::ranges::any_of(messages_, [&](const Message& m) {
      const std::string* texts[] = {&m.content, &m.reasoning, &m.tool_calls};
      return std::ranges::any_of(texts, [&](const std::string* t) { return t->find(mark_) != std::string::npos; });
    });
  };
  int attempt = 0;
  do {
    mark_ = fmt::format("[picture-{}:", attempt++);
  } while (used());
  for (const Message& message : messages_)
    pictures_.insert(pictures_.end(), message.pictures.begin(), message.pictures.end());
  for (Message& message : messages_) message.content = with_marks(message.content);
}

std::string PicturePlaces::mark(size_t number) const { return fmt::format("{}{}{}", mark_, number, kMarkEnd); }

std::string PicturePlaces::with_marks(std::string_view content) {
  std::string marked;
  split(
      content, [&](std::string_view text) { marked += text; },
      [&](std::string_view placeholder) {
        marked += mark(pictures_.size() + written_.size());
        written_.push_back(placeholder);
      });
  return marked;
}

std::string PicturePlaces::replace_placeholders(std::string_view text) const {
  std::string marked;
  size_t count = 0;
  split(text, [&](std::string_view part) { marked += part; }, [&](std::string_view) { marked += mark(count++); });
  return count == pictures_.size() ? marked : "";
}

Result<std::string> PicturePlaces::render(const ChatTemplate& chat_template, const TemplateOptions& options) const {
  if (!pictures_.empty() && chat_template.content_form() != ContentForm::text) {
    const auto text = chat_template.render(messages_, options);
    std::string marked = text ? replace_placeholders(*text) : "";
    if (!marked.empty()) return marked;
  }
  std::vector<Message> messages = messages_;
  size_t number = 0;
  for (Message& message : messages) {
    std::string marks;
    for (size_t i = 0; i < message.pictures.size(); ++i) marks += mark(number++);
    message.content.insert(0, marks);
    message.pictures.clear();
  }
  std::string text = TRY(render_in_any_order(chat_template, messages, options));
  for (size_t i = 0; i < pictures_.size(); ++i) {
    if (text.find(mark(i)) == std::string::npos)
      return fail(ErrorCode::unsupported,
                  "The model's chat template leaves out a message that has a picture; show it in a question instead.");
  }
  return text;
}

std::vector<TokenId> PicturePlaces::encode(const Tokenizer& tokenizer, std::string_view text,
                                           Beginning beginning) const {
  TokenWriter writer(tokenizer, beginning);
  for (size_t at; (at = text.find(mark_)) != std::string_view::npos;) {
    writer.text() += text.substr(0, at);
    text.remove_prefix(at + mark_.size());
    const std::optional<size_t> number = take_number(text);
    if (!number || *number >= pictures_.size() + written_.size()) {
      writer.text() += mark_;
      if (number) writer.text() += std::to_string(*number) + kMarkEnd;
    } else if (*number >= pictures_.size()) {
      writer.append_plain(written_[*number - pictures_.size()]);
    } else {
      for (const PicturePart& part : pictures_[*number]) {
        append_marker(part.text, *number, writer.text());
        if (!part.rows.empty()) writer.append_rows(part.rows);
      }
    }
  }
  writer.text() += text;
  return std::move(writer).finish();
}

}  // namespace nanomind
