// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_output.h"

#include <algorithm>
#include <string>
#include <utility>

namespace nanomind {

TextOutput::TextOutput(const GenerateOptions& options, const Tokenizer& tokenizer, Generation& out)
    : options_(options), tokenizer_(tokenizer), out_(out), stop_(options.stop) {
  if (options.reasoning) splitter_.emplace(options.reasoning->markers, options.reasoning->start);
}

// Markers may be control tokens, which stand for no text.
std::string_view TextOutput::spelled(TokenId token) const {
  const std::string_view bytes = tokenizer_.bytes(token);
  if (!bytes.empty()) return bytes;
  const std::string_view piece = tokenizer_.piece(token);
  if (options_.reasoning && (piece == options_.reasoning->markers.open || piece == options_.reasoning->markers.close)) {
    return piece;
  }
  return std::ranges::find(options_.visible, piece) != options_.visible.end() ? piece : std::string_view();
}

void TextOutput::emit(const ReasoningSplitter::Parts& parts) {
  if (!parts.reasoning.empty()) {
    out_.reasoning += parts.reasoning;
    if (options_.on_reasoning) options_.on_reasoning(parts.reasoning);
  }
  if (!parts.answer.empty()) {
    out_.text += parts.answer;
    if (options_.on_text) options_.on_text(parts.answer);
  }
}

void TextOutput::part(std::string_view text) {
  ReasoningSplitter::Parts parts{.reasoning = {}, .answer = std::string(text)};
  if (splitter_) parts = splitter_->push(text);
  parts.answer = stop_.push(parts.answer);
  emit(parts);
}

void TextOutput::push(TokenId token) { part(utf8_.push(spelled(token))); }

void TextOutput::finish(Ending ending) {
  if (ending == Ending::complete) part(utf8_.finish());
  ReasoningSplitter::Parts rest;
  if (splitter_) rest = splitter_->finish();
  rest.answer = stop_.push(rest.answer);
  rest.answer += stop_.finish();
  emit(rest);
}

}  // namespace nanomind
