// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a flag that work in progress looks at. The one place with process-wide state: a signal handler can have no
// other.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <stop_token>
#include <thread>

namespace nanomind {

// While it lives, SIGINT sets the flag instead of ending the program. One at a time.
class Interrupt {
 public:
  // What a further Ctrl-C does while the first is still being obeyed.
  enum class Again { ends_program, is_ignored };
  explicit Interrupt(Again again);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>* flag() const;
  bool requested() const { return flag()->load(); }
  // The same from our own side, as when nobody reads the output any more.
  void request();
  void clear();

 private:
  struct sigaction previous_;
};

// An Interrupt for code that wants a stop_token.
class StoppingInterrupt {
 public:
  StoppingInterrupt();
  ~StoppingInterrupt();
  std::stop_token token() const { return source_.get_token(); }
  bool requested() const { return interrupt_.requested(); }
  Interrupt& interrupt() { return interrupt_; }
  // Ends early when the stop is requested.
  void sleep_until(std::chrono::steady_clock::time_point time) const;

 private:
  std::stop_source source_;
  Interrupt interrupt_;
  std::thread watcher_;
};

// Ends the program as the signal would have ended it, so that a shell script stops too.
[[noreturn]] void die_of(int signal);

}  // namespace nanomind
