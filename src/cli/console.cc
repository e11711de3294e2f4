// SPDX-License-Identifier: Apache-2.0
#include "cli/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cli/output.h"
#include "cli/quantity.h"

namespace nanomind {
namespace {

int terminal_width(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Console::Console(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

Console::~Console() { end_progress(); }

// Failures are ignored: there is nowhere left to report them.
void Console::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

void Console::clear_progress() {
  if (bar_shown_) write("\r\033[K");
  bar_shown_ = false;
}

void Console::note(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  clear_progress();
  write((is_terminal_ ? terminal_safe(text) : std::string(text)) + "\n");
}

void Console::thought(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  clear_progress();
  write(is_terminal_ ? terminal_dimmed(text) : std::string(text));
}

void Console::error(std::string_view message) { note(fmt::format("nanomind: {}", message)); }

Log Console::log() {
  return Log([this](LogLevel level, std::string_view message) {
    if (level == LogLevel::error || level == LogLevel::warning) {
      error(message);
    } else if (verbosity_ == Verbosity::verbose || (level == LogLevel::info && is_terminal_)) {
      note(message);
    }
  });
}

void Console::progress(std::string_view label, uint64_t done, uint64_t total) {
  if (!is_terminal_) return;
  const std::scoped_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (label_ != label || done < first_done_) {
    label_ = label;
    first_done_ = done;
    first_time_ = now;
  } else if (bar_shown_ && done != total && now - last_time_ < std::chrono::milliseconds(100)) {
    return;
  }
  last_time_ = now;
  const double seconds = std::chrono::duration<double>(now - first_time_).count();
  const double rate = seconds > 0.5 ? static_cast<double>(done - first_done_) / seconds : 0;
  write("\r" + progress_line(label, done, total, rate, terminal_width(fd_) - 1) + "\033[K");
  bar_shown_ = true;
}

void Console::end_progress() {
  const std::scoped_lock lock(mutex_);
  clear_progress();
  label_.clear();
}

std::string progress_line(std::string_view label, uint64_t done, uint64_t total, double bytes_per_second, int width) {
  std::string line(label);
  if (total > 0) {
    constexpr int kCells = 24;
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const int filled = static_cast<int>(share * kCells);
    line += fmt::format(" {:3d} % [{}{}] {} of {}", static_cast<int>(share * 100), std::string(filled, '#'),
                        std::string(kCells - filled, ' '), format_bytes(done), format_bytes(total));
  } else if (done > 0) {
    line += fmt::format(" {}", format_bytes(done));
  }
  if (bytes_per_second >= 1) {
    line += fmt::format(", {}/s", format_bytes(static_cast<uint64_t>(bytes_per_second)));
    if (total > done)
      line += fmt::format(", {} left", format_seconds(static_cast<double>(total - done) / bytes_per_second));
  }
  return line.substr(0, static_cast<size_t>(std::max(0, width)));
}

}  // namespace nanomind
