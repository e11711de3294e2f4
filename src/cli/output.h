// SPDX-License-Identifier: Apache-2.0
// Standard output, which carries the answer only. Unbuffered, so that an answer streams; a failure is remembered, not
// raised, and reported once at the end.
#pragma once

#include <string_view>

#include "base/result.h"

namespace nanomind {

class Output {
 public:
  explicit Output(int fd);

  bool is_terminal() const { return is_terminal_; }
  // Does nothing after a failure.
  void write(std::string_view bytes);
  // The same for text by a model: a terminal is spared control characters that could drive it.
  void write_answer(std::string_view text);
  // The same for what a model thinks: dimmed on a terminal, and nowhere else.
  void write_thought(std::string_view text);

  // The reader went away (`| head -1`): no error, there is only nothing left to do.
  bool reader_gone() const;
  bool failed() const { return error_ != 0; }
  Result<void> status() const;

 private:
  int fd_;
  bool is_terminal_;
  int error_ = 0;  // errno of the first failure
};

// `text` without control characters other than newline and tab.
std::string terminal_safe(std::string_view text);
// The same, in a fainter colour.
std::string terminal_dimmed(std::string_view text);

}  // namespace nanomind
