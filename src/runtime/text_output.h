// SPDX-License-Identifier: Apache-2.0
// The text of an answer while its tokens come: bytes become characters, and a stop string ends it.
#pragma once

#include <string_view>

#include "runtime/generation.h"
#include "runtime/stop_strings.h"
#include "text/utf8_stream.h"

namespace nanomind {

class TextOutput {
 public:
  // Both outlive this. What is certain goes to options.on_text and to out.text.
  TextOutput(const GenerateOptions& options, Generation& out) : options_(options), out_(out), stop_(options.stop) {}

  void push(std::string_view bytes) { emit(stop_.push(utf8_.push(bytes))); }
  // The end of the answer: what was held back.
  void finish() {
    emit(stop_.push(utf8_.finish()));
    emit(stop_.finish());
  }
  // A stop string was met.
  bool stopped() const { return stop_.stopped(); }

 private:
  void emit(std::string_view text) {
    if (text.empty()) return;
    out_.text += text;
    if (options_.on_text) options_.on_text(text);
  }

  const GenerateOptions& options_;
  Generation& out_;
  Utf8Stream utf8_;
  StopStrings stop_;
};

}  // namespace nanomind
