// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include "base/result.h"

namespace nanomind {
namespace {

// About 50 microseconds of spinning: longer than the serial code between two loops of a decode step.
constexpr int kSpins = 20000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

constexpr uint32_t epoch_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
constexpr uint64_t kActiveMask = (1u << 31) - 1;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wakeups_.fetch_add(1);
  wakeups_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Task& task) {
  task_ = task;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t epoch = static_cast<uint64_t>(epoch_of(state_.load(std::memory_order_relaxed)) + 1) << 32;
  state_.store(epoch | kOpen);
  if (sleepers_.load() > 0) {
    wakeups_.fetch_add(1);
    wakeups_.notify_all();
  }
  take_chunks(0);
  state_.fetch_and(~kOpen);
  while ((state_.load(std::memory_order_acquire) & kActiveMask) != 0) pause();
}

void ThreadPool::take_chunks(int thread) {
  for (;;) {
    const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= task_.count) return;
    task_.call(task_.context, i, thread);
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  int spins = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    uint64_t state = state_.load();
    if (epoch_of(state) != seen && (state & kOpen) != 0) {
      if (!state_.compare_exchange_weak(state, state + 1)) continue;
      take_chunks(thread);
      state_.fetch_sub(1, std::memory_order_release);
      seen = epoch_of(state);
      spins = 0;
      continue;
    }
    if (++spins < kSpins) {
      pause();
      continue;
    }
    sleepers_.fetch_add(1);
    const uint32_t wakeups = wakeups_.load();
    state = state_.load();
    if ((epoch_of(state) == seen || (state & kOpen) == 0) && !stopping_.load()) wakeups_.wait(wakeups);
    sleepers_.fetch_sub(1);
    spins = 0;
  }
}

}  // namespace nanomind
