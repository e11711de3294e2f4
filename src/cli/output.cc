// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace nanomind {

Output::Output(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

void Output::write(std::string_view bytes) {
  while (!bytes.empty() && error_ == 0) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

void Output::write_answer(std::string_view text) {
  if (is_terminal_) {
    write(terminal_safe(text));
  } else {
    write(text);
  }
}

void Output::write_thought(std::string_view text) {
  if (is_terminal_) write(terminal_dimmed(text));
}

bool Output::reader_gone() const { return error_ == EPIPE; }

Result<void> Output::status() const {
  if (error_ == 0 || reader_gone()) return {};
  const ErrorCode code = error_ == ENOSPC || error_ == EDQUOT ? ErrorCode::no_space : ErrorCode::io;
  return fail(code, fmt::format("Could not write to standard output: {}. The answer above is incomplete.",
                                std::strerror(error_)));
}

std::string terminal_safe(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080..U+009F in UTF-8: terminals obey these too
      ++i;
    } else if (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7F)) {
      clean += text[i];
    }
  }
  return clean;
}

std::string terminal_dimmed(std::string_view text) { return "\x1b[2m" + terminal_safe(text) + "\x1b[22m"; }

}  // namespace nanomind
