// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

namespace nanomind {
namespace {

// A signal handler has no context but globals.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> interrupted{false};
std::atomic<bool> again_ends_program{false};
std::atomic<bool> watched{false};
sem_t wake_watcher;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void on_interrupt(int) {
  const int saved = errno;
  if (interrupted.exchange(true) && again_ends_program) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  if (watched) sem_post(&wake_watcher);
  errno = saved;
}

}  // namespace

Interrupt::Interrupt(Again again) : previous_() {
  interrupted = false;
  again_ends_program = again == Again::ends_program;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &previous_, nullptr); }

const std::atomic<bool>* Interrupt::flag() const { return &interrupted; }

void Interrupt::request() { interrupted = true; }

void Interrupt::clear() { interrupted = false; }

StoppingInterrupt::StoppingInterrupt() : interrupt_(Interrupt::Again::ends_program) {
  sem_init(&wake_watcher, 0, 0);
  watched = true;
  watcher_ = std::thread([this] {
    while (sem_wait(&wake_watcher) != 0) {
    }
    if (interrupt_.requested()) source_.request_stop();
  });
}

StoppingInterrupt::~StoppingInterrupt() {
  watched = false;
  sem_post(&wake_watcher);
  watcher_.join();
}

void StoppingInterrupt::sleep_until(std::chrono::steady_clock::time_point time) const {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_until(lock, source_.get_token(), time, [] { return false; });
}

void die_of(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::_Exit(1);  // only where the signal is blocked
}

}  // namespace nanomind
