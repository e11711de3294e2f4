// SPDX-License-Identifier: Apache-2.0
// Standard error: notices, warnings, and a progress line that exists on terminals only.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/log.h"

namespace nanomind {

enum class Verbosity { normal, verbose };

// Thread-safe.
class Console {
 public:
  explicit Console(int fd);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool is_terminal() const { return is_terminal_; }
  void set_verbosity(Verbosity verbosity) { verbosity_ = verbosity; }

  // A line; the newline is added.
  void note(std::string_view text);
  // A piece of what a model thinks, as it comes; dimmed on a terminal.
  void thought(std::string_view text);
  // "nanomind: ..."
  void error(std::string_view message);
  // Log messages from warnings on; also notices when verbose or somebody is watching; all when verbose.
  Log log();

  // Shows how far something is, at most ten times a second; total 0 means unknown.
  void progress(std::string_view label, uint64_t done, uint64_t total);
  void end_progress();

 private:
  void write(std::string_view text);
  void clear_progress();

  int fd_;
  bool is_terminal_;
  Verbosity verbosity_ = Verbosity::normal;
  std::mutex mutex_;
  bool bar_shown_ = false;
  std::string label_;
  uint64_t first_done_ = 0;
  std::chrono::steady_clock::time_point first_time_;
  std::chrono::steady_clock::time_point last_time_;
};

// "pulling  45 % [####      ] 221 MB of 491 MB, 12.3 MB/s, 22 s left", cut to `width` columns.
std::string progress_line(std::string_view label, uint64_t done, uint64_t total, double bytes_per_second, int width);

}  // namespace nanomind
