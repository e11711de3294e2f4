// SPDX-License-Identifier: Apache-2.0
// Every chunk runs exactly once, whatever the number of threads, and loops see what earlier loops wrote.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

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

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace nanomind
