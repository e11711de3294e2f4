// SPDX-License-Identifier: Apache-2.0
// One pool of threads for fork-join loops: workers spin a little for the next loop, then sleep, so an idle program uses
// no CPU. Each thread begins with its own share of the chunks, the same in loops of as many, whose data are in its
// caches, and then helps the others, so that a busy core does not hold them up.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace nanomind {

class ThreadPool {
 public:
  // Logical processors that a thread may run on; empty: all that the process may.
  using Processors = std::vector<int>;

  // `threads` counts the caller too; 1 means that every loop runs on the caller alone. At least 1. Worker i (from 1)
  // keeps to places[i] where there is such an entry; the caller is never moved, as its children would inherit that.
  explicit ThreadPool(int threads, std::span<const Processors> places = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return worker_count_ + 1; }

  // From now on loops run on the first `threads` threads only (1..threads()); the others fall asleep. Between loops.
  void limit(int threads);

  // Calls f(i), or f(i, thread) with thread in [0, threads()), for each i in [0, count), from the caller and the
  // workers, and returns when all are done. Calls with the same thread never overlap. Allocates nothing. One loop at a
  // time: not to be called from inside f, nor from two threads at once. f must not throw.
  template <typename F>
  void for_each(int64_t count, const F& f) {
    if (count <= 0) return;
    if (count == 1 || limit_.load(std::memory_order_relaxed) == 1) {
      for (int64_t i = 0; i < count; ++i) invoke(f, i, 0);
      return;
    }
    run({.call = [](const void* context, int64_t i, int thread) { invoke(*static_cast<const F*>(context), i, thread); },
         .context = &f,
         .count = count});
  }

  // No loop comes soon: workers that wait for one sleep at once, so that their processors are free for whoever works
  // next. Between loops.
  void rest() { resting_.store(true, std::memory_order_relaxed); }

  // Workers that are asleep now: all of them some time after the last loop.
  int sleeping() const;

 private:
  template <typename F>
  static void invoke(const F& f, int64_t i, int thread) {
    if constexpr (std::is_invocable_v<const F&, int64_t, int>)
      f(i, thread);
    else
      f(i);
  }

  struct Task {
    void (*call)(const void* context, int64_t i, int thread) = nullptr;
    const void* context = nullptr;
    int64_t count = 0;
    int shares = 0;
  };
  // Of a thread, chunks [next, end) of the loop, which others may take too.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  // `asleep` is 1 while the worker waits to be woken.
  struct alignas(64) Worker {
    std::atomic<uint32_t> asleep{0};
    std::thread thread;
  };

  void run(const Task& task);
  void work(int thread);  // a worker's life
  // Takes part in the open loop if it is a new one and this thread's; `seen` is the epoch of the last one.
  bool join(int thread, uint32_t& seen);
  bool waits_for(int thread, uint32_t seen) const;
  void sleep(int thread, uint32_t seen);
  void take_chunks(int thread);
  static void wake(Worker& worker);

  // Epoch in the high 32 bits, then kOpen, then the number of workers inside the current loop. A worker may only enter
  // an open loop, and the caller returns only after it has closed the loop and all have left.
  static constexpr uint64_t kOpen = 1u << 31;
  // What waiting workers look at lies apart from what is written for each loop.
  alignas(64) std::atomic<uint64_t> state_{0};
  std::atomic<int> limit_;
  std::atomic<bool> resting_{false};  // since the last loop
  std::atomic<bool> stopping_{false};
  alignas(64) Task task_;
  int worker_count_;
  std::unique_ptr<Worker[]> workers_;  // of threads 1 and up
  std::unique_ptr<Share[]> shares_;    // of all threads
};

}  // namespace nanomind
