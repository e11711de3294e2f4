// SPDX-License-Identifier: Apache-2.0
// One pool of threads for fork-join loops: workers spin a little for the next loop, then sleep, so an idle program uses
// no CPU. Chunks are handed out from a counter, never split statically, so a busy core does not hold up the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace nanomind {

class ThreadPool {
 public:
  // `threads` counts the caller too; 1 means that every loop runs on the caller alone. At least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(i), or f(i, thread) with thread in [0, threads()), for each i in [0, count), from the caller and the
  // workers, and returns when all are done. Calls with the same thread never overlap. Allocates nothing. One loop at a
  // time: not to be called from inside f, nor from two threads at once. f must not throw.
  template <typename F>
  void for_each(int64_t count, const F& f) {
    if (count <= 0) return;
    if (count == 1 || workers_.empty()) {
      for (int64_t i = 0; i < count; ++i) invoke(f, i, 0);
      return;
    }
    run({.call = [](const void* context, int64_t i, int thread) { invoke(*static_cast<const F*>(context), i, thread); },
         .context = &f,
         .count = count});
  }

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
  };

  void run(const Task& task);
  void work(int thread);  // a worker's life
  void take_chunks(int thread);

  // Epoch in the high 32 bits, then kOpen, then the number of workers inside the current loop. A worker may only enter
  // an open loop, and the caller returns only after it has closed the loop and all have left.
  static constexpr uint64_t kOpen = 1u << 31;
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> wakeups_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  Task task_;
  std::vector<std::thread> workers_;
};

}  // namespace nanomind
