// SPDX-License-Identifier: Apache-2.0
// The text of an answer while its tokens come: bytes become characters, reasoning is parted from the answer, and a stop
// string ends it.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/generation.h"
#include "runtime/stop_strings.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace nanomind {

class TextOutput {
 public:
  // All outlive this. What is certain goes to the functions of `options` and to the texts of `out`.
  TextOutput(const GenerateOptions& options, const Tokenizer& tokenizer, Generation& out);

  void push(TokenId token);
  // The end of the answer: what was held back. Where the answer was cut, a character that has begun is left out; one
  // that the model itself left incomplete is U+FFFD.
  enum class Ending { complete, cut };
  void finish(Ending ending);

  // A stop string was met.
  bool stopped() const { return stop_.stopped(); }
  // What comes next is reasoning.
  bool reasoning() const { return splitter_ && splitter_->reasoning(); }

 private:
  std::string_view spelled(TokenId token) const;
  void part(std::string_view text);
  void emit(const ReasoningSplitter::Parts& parts);

  const GenerateOptions& options_;
  const Tokenizer& tokenizer_;
  Generation& out_;
  Utf8Stream utf8_;
  std::optional<ReasoningSplitter> splitter_;
  StopStrings stop_;
};

}  // namespace nanomind
