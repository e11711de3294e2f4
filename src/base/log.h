// SPDX-License-Identifier: Apache-2.0
// Where notices go. Library code never prints: it reports through a Log that the program passes down; a default Log is
// silent.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace nanomind {

enum class LogLevel { debug, info, warning, error };

class Log {
 public:
  // Called with one complete message without newline; must be safe to call from any thread.
  using Sink = std::function<void(LogLevel, std::string_view)>;

  Log() = default;
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void write(LogLevel level, std::string_view message) const {
    if (sink_) sink_(level, message);
  }
  void debug(std::string_view message) const { write(LogLevel::debug, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void warning(std::string_view message) const { write(LogLevel::warning, message); }
  void error(std::string_view message) const { write(LogLevel::error, message); }

 private:
  Sink sink_;
};

}  // namespace nanomind
