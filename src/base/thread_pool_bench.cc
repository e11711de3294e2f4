// SPDX-License-Identifier: Apache-2.0
// What a loop costs that has nothing to do: opening it, and waiting until all threads have come and gone.
#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>

#include "base/thread_pool.h"

namespace nanomind {
namespace {

// Every thread must come before any may leave, so no loop is over before the slowest has noticed it.
void meet(ThreadPool& pool) {
  std::atomic<int> missing{pool.threads()};
  pool.for_each(pool.threads(), [&](int64_t) {
    missing.fetch_sub(1);
    while (missing.load() > 0) {
    }
  });
}

void fork_join_spinning(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) meet(pool);
}

// Without the meeting: the caller may do all chunks alone.
void empty_loop(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.for_each(pool.threads() * 4, [](int64_t) {});
}

// With 2 threads, and with one on every processor.
void thread_counts(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2);
  if (std::thread::hardware_concurrency() > 2) benchmark->Arg(std::thread::hardware_concurrency());
}

BENCHMARK(fork_join_spinning)->Apply(thread_counts)->UseRealTime();
BENCHMARK(empty_loop)->Apply(thread_counts)->UseRealTime();

}  // namespace
}  // namespace nanomind

BENCHMARK_MAIN();
