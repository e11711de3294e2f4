// SPDX-License-Identifier: Apache-2.0
// Every chunk runs exactly once, whatever the number of threads, loops see what earlier loops wrote, and idle workers
// sleep.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <ctime>
#include <numeric>

namespace nanomind {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEachChunkOnce) {
  ThreadPool pool(GetParam());
  std::vector<int> hits(1000);
  for (int64_t count : {0, 1, 2, 3, 17, 1000}) {
    std::fill(hits.begin(), hits.end(), 0);
    pool.for_each(count, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
    EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), int64_t{0}), count);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(hits[static_cast<size_t>(i)], 1);
  }
}

// Each loop adds to what the one before left, without atomics: a race or a lost chunk changes the sum (or trips TSan).
TEST_P(ThreadPoolTest, ManyLoopsInARowAreOrdered) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(64);
  for (int round = 0; round < 2000; ++round) {
    pool.for_each(64, [&](int64_t i) { values[static_cast<size_t>(i)] += values[static_cast<size_t>((i))] % 3 + 1; });
  }
  int64_t expected = 0;
  for (int round = 0; round < 2000; ++round) expected += expected % 3 + 1;
  for (int64_t value : values) EXPECT_EQ(value, expected);
}

// Each thread adds to a sum of its own, without atomics: if two ran under one number, sums would be lost (or TSan
// trips).
TEST_P(ThreadPoolTest, ThreadsHaveNumbersOfTheirOwn) {
  ThreadPool pool(GetParam());
  struct alignas(64) Sum {
    int64_t value = 0;
  };
  std::vector<Sum> sums(static_cast<size_t>(pool.threads()));
  for (int round = 0; round < 100; ++round) {
    pool.for_each(1000, [&](int64_t i, int thread) { sums[static_cast<size_t>(thread)].value += i; });
  }
  int64_t total = 0;
  for (const Sum& sum : sums) total += sum.value;
  EXPECT_EQ(total, int64_t{100} * 999 * 1000 / 2);
}

// Workers that have gone to sleep wake up for the next loop: with as many waiting chunks as threads, the loop can only
// end when every thread has come.
TEST_P(ThreadPoolTest, SleepingWorkersWake) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> present{0};
    pool.for_each(GetParam(), [&](int64_t) {
      ++present;
      while (present.load() < GetParam()) std::this_thread::yield();
    });
    EXPECT_EQ(present.load(), GetParam());
    // Long enough in most rounds for workers to fall asleep; the test is right either way.
    for (int i = 0; i < 2000; ++i) std::this_thread::yield();
  }
}

// With as many chunks as threads, all of which wait for each other, each does its own.
TEST_P(ThreadPoolTest, EachThreadBeginsWithItsShare) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> present{0};
    pool.for_each(GetParam(), [&](int64_t i, int thread) {
      EXPECT_EQ(i, thread);
      ++present;
      while (present.load() < GetParam()) std::this_thread::yield();
    });
  }
}

// The loop could not end if the chunks that stand behind one that waits were not taken by others.
TEST_P(ThreadPoolTest, OthersHelpWhoIsHeldUp) {
  if (GetParam() == 1) GTEST_SKIP() << "there is nobody to help";
  ThreadPool pool(GetParam());
  constexpr int64_t kChunks = 64;
  for (int round = 0; round < 20; ++round) {
    std::atomic<int64_t> done{0};
    pool.for_each(kChunks, [&](int64_t i) {
      while (i == 0 && done.load() < kChunks - 1) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(done.load(), kChunks);
  }
}

int64_t cpu_time_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void wait_until_all_sleep(const ThreadPool& pool) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (pool.sleeping() < pool.threads() - 1) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "workers never fall asleep";
    std::this_thread::yield();
  }
}

// While the caller computes for 20 ms of its own time, all other threads of the process together use less than a
// twentieth of that: next to nothing, where one spinning worker would use about as much as the caller.
TEST_P(ThreadPoolTest, IdleWorkersUseNoProcessor) {
  ThreadPool pool(GetParam());
  pool.for_each(100, [](int64_t) {});
  wait_until_all_sleep(pool);
  const int64_t process = cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID), caller = cpu_time_ns(CLOCK_THREAD_CPUTIME_ID);
  while (cpu_time_ns(CLOCK_THREAD_CPUTIME_ID) - caller < 20'000'000) {
  }
  const int64_t all = cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID) - process;
  EXPECT_LT(all - (cpu_time_ns(CLOCK_THREAD_CPUTIME_ID) - caller), 1'000'000);
}

// Of the half millisecond for which each worker would wait, less than half is used.
TEST_P(ThreadPoolTest, RestingWorkersSleepAtOnce) {
  ThreadPool pool(GetParam());
  constexpr int kRounds = 20;
  int64_t used = 0;  // by workers behind the loops
  for (int round = 0; round < kRounds; ++round) {
    pool.for_each(100, [](int64_t) {});
    const int64_t process = cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID), caller = cpu_time_ns(CLOCK_THREAD_CPUTIME_ID);
    pool.rest();
    wait_until_all_sleep(pool);
    used += cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID) - process - (cpu_time_ns(CLOCK_THREAD_CPUTIME_ID) - caller);
  }
  EXPECT_LT(used, int64_t{kRounds} * (GetParam() - 1) * 250'000 + 1'000'000);
}

// A limited loop has no threads beyond its limit, those sleep through it, and a wider one has them back.
TEST_P(ThreadPoolTest, LimitsHowManyThreadsTakePart) {
  ThreadPool pool(GetParam());
  const int half = (GetParam() + 1) / 2;
  for (int round = 0; round < 20; ++round) {
    pool.limit(half);
    for (int loop = 0; loop < 50; ++loop) {
      pool.for_each(64, [&](int64_t, int thread) { EXPECT_LT(thread, half); });
    }
    pool.limit(GetParam());
    std::atomic<int> present{0};
    pool.for_each(GetParam(), [&](int64_t) {
      ++present;
      while (present.load() < GetParam()) std::this_thread::yield();
    });
  }
  wait_until_all_sleep(pool);
  pool.limit(half);
  pool.for_each(64, [](int64_t) {});
  EXPECT_GE(pool.sleeping(), GetParam() - half);
}

// A worker stays where it was put, and the caller, whose place its child processes inherit, is not moved.
TEST(ThreadPoolPlaces, BindTheWorkersButNotTheCaller) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &before)) ++processor;
  const std::vector<ThreadPool::Processors> places = {{processor}, {processor}};
  ThreadPool pool(2, places);
  std::atomic<int> present{0};
  pool.for_each(2, [&](int64_t, int thread) {
    ++present;
    while (present.load() < 2) std::this_thread::yield();
    cpu_set_t now;
    ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
    if (thread == 0) {
      EXPECT_TRUE(CPU_EQUAL(&now, &before));
    } else {
      EXPECT_EQ(CPU_COUNT(&now), 1);
      EXPECT_TRUE(CPU_ISSET(processor, &now));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace nanomind
