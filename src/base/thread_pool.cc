// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/result.h"

namespace nanomind {
namespace {

// Longer than the serial code between two loops of a decode step, and between two steps.
constexpr auto kSpinTime = std::chrono::microseconds(500);
constexpr int kPausesPerLook = 32;  // at the clock; reading it costs about as much as a pause

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Places are a matter of speed: a thread that the system will not bind works where it is.
void keep_to(const ThreadPool::Processors& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) {
    if (processor >= 0 && processor < CPU_SETSIZE) CPU_SET(processor, &set);
  }
  if (CPU_COUNT(&set) > 0) ::sched_setaffinity(0, sizeof set, &set);
}

constexpr uint32_t epoch_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
constexpr uint64_t kActiveMask = (1u << 31) - 1;

}  // namespace

ThreadPool::ThreadPool(int threads, std::span<const Processors> places) : limit_(threads), worker_count_(threads - 1) {
  CHECK(threads >= 1);
  shares_ = std::make_unique<Share[]>(static_cast<size_t>(threads));
  workers_ = std::make_unique<Worker[]>(static_cast<size_t>(worker_count_));
  for (int i = 1; i < threads; ++i) {
    Processors place = static_cast<size_t>(i) < places.size() ? places[static_cast<size_t>(i)] : Processors();
    workers_[static_cast<size_t>(i - 1)].thread = std::thread([this, i, place = std::move(place)] {
      keep_to(place);
      work(i);
    });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  for (int i = 0; i < worker_count_; ++i) wake(workers_[static_cast<size_t>(i)]);
  for (int i = 0; i < worker_count_; ++i) workers_[static_cast<size_t>(i)].thread.join();
}

void ThreadPool::limit(int threads) {
  CHECK(threads >= 1 && threads <= this->threads());
  limit_.store(threads, std::memory_order_relaxed);
}

int ThreadPool::sleeping() const {
  int count = 0;
  for (int i = 0; i < worker_count_; ++i) count += static_cast<int>(workers_[static_cast<size_t>(i)].asleep.load());
  return count;
}

void ThreadPool::run(const Task& task) {
  task_ = task;
  task_.shares = static_cast<int>(std::min<int64_t>(limit_.load(std::memory_order_relaxed), task.count));
  for (int64_t i = 0; i < task_.shares; ++i) {
    shares_[static_cast<size_t>(i)].next.store(task.count * i / task_.shares, std::memory_order_relaxed);
    shares_[static_cast<size_t>(i)].end = task.count * (i + 1) / task_.shares;
  }
  resting_.store(false, std::memory_order_relaxed);
  const uint64_t epoch = static_cast<uint64_t>(epoch_of(state_.load(std::memory_order_relaxed)) + 1) << 32;
  state_.store(epoch | kOpen);
  for (int64_t i = 0; i + 1 < task_.shares; ++i) wake(workers_[static_cast<size_t>(i)]);
  take_chunks(0);
  state_.fetch_and(~kOpen);
  while ((state_.load(std::memory_order_acquire) & kActiveMask) != 0) pause();
}

// A worker says that it sleeps before it looks at the state for the last time, and the caller opens the loop before it
// looks who sleeps: one of them sees the other.
void ThreadPool::wake(Worker& worker) {
  if (worker.asleep.load() == 0) return;
  worker.asleep.store(0);
  worker.asleep.notify_one();
}

void ThreadPool::take_chunks(int thread) {
  for (int others = 0; others < task_.shares; ++others) {
    Share& share = shares_[static_cast<size_t>((thread + others) % task_.shares)];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
      if (i < share.end) task_.call(task_.context, i, thread);
    }
  }
}

bool ThreadPool::waits_for(int thread, uint32_t seen) const {
  const uint64_t state = state_.load();
  return epoch_of(state) != seen && (state & kOpen) != 0 && thread < limit_.load(std::memory_order_relaxed);
}

bool ThreadPool::join(int thread, uint32_t& seen) {
  uint64_t state = state_.load();
  // The limit is read after the loop was seen open, and counts only if entering finds it open still, so that it is that
  // loop's.
  while (epoch_of(state) != seen && (state & kOpen) != 0 && thread < limit_.load(std::memory_order_relaxed)) {
    if (!state_.compare_exchange_weak(state, state + 1)) continue;
    take_chunks(thread);
    state_.fetch_sub(1, std::memory_order_release);
    seen = epoch_of(state);
    return true;
  }
  return false;
}

void ThreadPool::sleep(int thread, uint32_t seen) {
  std::atomic<uint32_t>& asleep = workers_[static_cast<size_t>(thread - 1)].asleep;
  asleep.store(1);
  if (waits_for(thread, seen) || stopping_.load()) {
    asleep.store(0);
  } else {
    asleep.wait(1);
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  int pauses = 0;  // since the last loop
  std::chrono::steady_clock::time_point end_of_spin;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (join(thread, seen)) {
      pauses = 0;
      continue;
    }
    pause();
    if (++pauses % kPausesPerLook != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (pauses == kPausesPerLook) end_of_spin = now + kSpinTime;
    if (now < end_of_spin && !resting_.load(std::memory_order_relaxed)) continue;
    sleep(thread, seen);
    pauses = 0;
  }
}

}  // namespace nanomind
