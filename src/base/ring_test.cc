// SPDX-License-Identifier: Apache-2.0
// Each transition and error of the ring, and two real threads that hand each other checksummed rows while either side
// may fail or leave. ring_model_test.cc proves what a stress test can only make likely.
#include "base/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace nanomind {
namespace {

struct RowHeader {
  uint64_t number = 0;
  uint64_t checksum = 0;
};
using Rows = Ring<RowHeader>;

void publish(Rows& ring, uint64_t number) {
  auto slot = ring.acquire_write();
  ASSERT_TRUE(slot);
  slot->memory()[0] = static_cast<float>(number);
  slot->publish({.number = number});
}

void wait_for(const Rows& ring, uint64_t RingStatistics::* count, uint64_t value) {
  while (ring.statistics().*count < value) std::this_thread::yield();
}

class RingTest : public testing::Test {
 protected:
  std::vector<float> memory_ = std::vector<float>(size_t{3} * 4);
  Rows ring_{std::span(memory_), 3};
};

TEST_F(RingTest, HandsOverTheMemoryItself) {
  auto written = ring_.acquire_write();
  ASSERT_TRUE(written);
  EXPECT_EQ(written->memory().data(), memory_.data());
  EXPECT_EQ(written->memory().size(), 4u);
  written->memory()[1] = 7;
  written->publish({.number = 5}, 2);
  auto read = ring_.acquire_read();
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->header().number, 5u);
  EXPECT_EQ((*read)->memory().data(), memory_.data());
  EXPECT_EQ((*read)->memory().size(), 2u);
  EXPECT_EQ((*read)->memory()[1], 7);
}

TEST_F(RingTest, TakesSlotsThatLieApart) {
  std::array<float, 2> a{}, b{};
  const std::array<std::span<float>, 2> parts{a, b};
  Rows ring{parts};
  publish(ring, 1);
  publish(ring, 2);
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(b[0], 2);
  ring.close();
}

TEST_F(RingTest, ASlotThatWasNotPublishedIsNextAgain) {
  {
    auto slot = ring_.acquire_write();
    ASSERT_TRUE(slot);
    EXPECT_EQ(slot->memory().data(), memory_.data());
  }
  auto again = ring_.acquire_write();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->memory().data(), memory_.data());
  EXPECT_EQ(ring_.statistics().published, 0u);
}

TEST_F(RingTest, SlotsComeInOrderAndThenTheEnd) {
  publish(ring_, 1);
  publish(ring_, 2);
  ring_.finish();
  for (const uint64_t expected : {1u, 2u}) {
    auto slot = ring_.acquire_read();
    ASSERT_TRUE(slot && *slot);
    EXPECT_EQ((*slot)->header().number, expected);
  }
  for (int i = 0; i < 2; ++i) {  // an end stays one
    auto end = ring_.acquire_read();
    ASSERT_TRUE(end);
    EXPECT_FALSE(*end);
  }
  ring_.reset();
}

TEST_F(RingTest, AnErrorComesAfterWhatWasPublished) {
  publish(ring_, 1);
  ring_.fail_with({ErrorCode::corrupt, "The picture is torn."});
  EXPECT_TRUE(ring_.acquire_read().value());
  const auto error = ring_.acquire_read();
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, ErrorCode::corrupt);
  EXPECT_EQ(error.error().message, "The picture is torn.");
  ring_.reset();
}

TEST_F(RingTest, AFullRingHoldsTheProducerUntilASlotIsFree) {
  for (uint64_t i = 0; i < 3; ++i) publish(ring_, i);
  std::atomic<bool> written{false};
  std::thread producer([&] {
    publish(ring_, 3);
    written = true;
    ring_.finish();
  });
  wait_for(ring_, &RingStatistics::producer_waits, 1);
  EXPECT_FALSE(written);
  ASSERT_TRUE(ring_.acquire_read().value());
  producer.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(ring_.statistics().depth, 3u);
  ring_.close();
  ring_.reset();
}

TEST_F(RingTest, AnEmptyRingHoldsTheConsumer) {
  std::thread producer([&] {
    wait_for(ring_, &RingStatistics::consumer_waits, 1);
    publish(ring_, 9);
  });
  auto slot = ring_.acquire_read();
  ASSERT_TRUE(slot && *slot);
  EXPECT_EQ((*slot)->header().number, 9u);
  producer.join();
}

TEST_F(RingTest, SlotsAreLetGoInAnyOrderAndTheOldestCounts) {
  for (uint64_t i = 0; i < 3; ++i) publish(ring_, i);
  auto first = ring_.acquire_read();
  auto second = ring_.acquire_read();
  ASSERT_TRUE(first && second && *first && *second);
  second->reset();
  std::thread producer([&] {
    publish(ring_, 3);
    ring_.finish();
  });
  wait_for(ring_, &RingStatistics::producer_waits, 1);  // it waits for the slot of `first`, though another is FREE
  EXPECT_EQ(ring_.statistics().published, 3u);
  first->reset();
  producer.join();
  for (const uint64_t expected : {2u, 3u}) EXPECT_EQ(ring_.acquire_read().value()->header().number, expected);
  ring_.reset();
}

TEST_F(RingTest, ClosingDropsWhatIsReadyAndEndsTheProducer) {
  publish(ring_, 1);
  publish(ring_, 2);
  auto held = ring_.acquire_read();
  ASSERT_TRUE(held && *held);
  auto open = ring_.acquire_write();
  ASSERT_TRUE(open);
  ring_.close();
  EXPECT_EQ(ring_.statistics().depth, 0u);
  open->publish({.number = 3});  // too late: nobody will read it
  EXPECT_EQ(ring_.statistics().depth, 0u);
  EXPECT_EQ(ring_.acquire_write().error().code, ErrorCode::cancelled);
  EXPECT_EQ(ring_.acquire_read().error().code, ErrorCode::cancelled);
  EXPECT_EQ((*held)->header().number, 1u);  // still its own
  held->reset();
  ring_.reset();
}

TEST_F(RingTest, ClosingWakesAProducerThatWaits) {
  for (uint64_t i = 0; i < 3; ++i) publish(ring_, i);
  std::thread consumer([&] {
    wait_for(ring_, &RingStatistics::producer_waits, 1);
    ring_.close();
  });
  EXPECT_EQ(ring_.acquire_write().error().code, ErrorCode::cancelled);
  consumer.join();
  ring_.reset();
}

TEST_F(RingTest, ACancelFlagEndsAWait) {
  std::atomic<bool> cancel{false};
  std::thread other([&] {
    wait_for(ring_, &RingStatistics::consumer_waits, 1);
    cancel = true;
    ring_.wake();
  });
  EXPECT_EQ(ring_.acquire_read(&cancel).error().code, ErrorCode::cancelled);
  other.join();
  EXPECT_EQ(ring_.acquire_write(&cancel).error().code, ErrorCode::cancelled) << "a set flag, though a slot is FREE";
  EXPECT_TRUE(ring_.acquire_write());
  ring_.reset();
}

TEST_F(RingTest, CountsWhatGoesThrough) {
  publish(ring_, 1);
  ring_.acquire_write()->publish({}, 1);
  EXPECT_EQ(ring_.statistics().depth, 2u);
  EXPECT_EQ(ring_.statistics().published, 2u);
  EXPECT_EQ(ring_.statistics().bytes, (4 + 1) * sizeof(float));
  EXPECT_EQ(ring_.statistics().producer_waits, 0u);
  ring_.close();
}

TEST_F(RingTest, AfterAResetTheNextRequestIsServed) {
  publish(ring_, 1);
  ring_.finish();
  ring_.close();
  ring_.reset();
  publish(ring_, 2);
  ring_.finish();
  EXPECT_EQ(ring_.acquire_read().value()->header().number, 2u);
  EXPECT_FALSE(ring_.acquire_read().value());
  EXPECT_EQ(ring_.statistics().published, 2u);
}

using RingDeathTest = RingTest;

TEST_F(RingDeathTest, MisuseIsABrokenInvariant) {
  EXPECT_DEATH(Rows(std::span(memory_), 0), "broken invariant");
  EXPECT_DEATH(Rows(std::span(memory_), 5), "broken invariant");
  {
    const auto slot = ring_.acquire_write();
    EXPECT_DEATH(static_cast<void>(ring_.acquire_write()), "broken invariant");
    EXPECT_DEATH(ring_.reset(), "broken invariant");
  }
  for (uint64_t i = 0; i < 3; ++i) publish(ring_, i);
  const auto a = ring_.acquire_read(), b = ring_.acquire_read(), c = ring_.acquire_read();
  EXPECT_DEATH(static_cast<void>(ring_.acquire_read()), "broken invariant") << "with all slots held";
  ring_.finish();
  EXPECT_DEATH(ring_.finish(), "broken invariant");
  EXPECT_DEATH(static_cast<void>(ring_.acquire_write()), "broken invariant");
}

// --- two real threads
// -------------------------------------------------------------------------------------------------

uint64_t checksum(std::span<const float> row) {
  return std::accumulate(row.begin(), row.end(), uint64_t{17},
                         [](uint64_t sum, float value) { return sum * 31 + static_cast<uint64_t>(value); });
}

enum class Ending { finishes, producer_fails, consumer_leaves, is_cancelled };

struct Request {
  Ending ending;
  uint64_t items;
  uint64_t until;  // after so many items the ending comes
  uint32_t seed;
};

void produce(Rows& ring, const Request& request, std::atomic<bool>& cancel) {
  std::mt19937 random(request.seed);
  for (uint64_t i = 0; i < request.items; ++i) {
    if (request.ending == Ending::producer_fails && i == request.until)
      return ring.fail_with({ErrorCode::io, "The disk is gone."});
    if (request.ending == Ending::is_cancelled && i == request.until) {
      cancel = true;
      ring.wake();
    }
    auto slot = ring.acquire_write(&cancel);
    if (!slot) {
      EXPECT_EQ(slot.error().code, ErrorCode::cancelled);
      break;
    }
    if (random() % 8 == 0) {  // thinks better of it
      --i;
      continue;
    }
    const size_t used = 1 + random() % slot->memory().size();
    for (float& value : slot->memory().first(used)) value = static_cast<float>(random() % 1000);
    slot->publish({.number = i, .checksum = checksum(slot->memory().first(used))}, used);
  }
  ring.finish();
}

uint64_t consume(Rows& ring, const Request& request, std::atomic<bool>& cancel) {
  std::mt19937 random(request.seed + 1);
  std::vector<Rows::ReadSlot> held;
  uint64_t received = 0;
  for (;;) {
    if (request.ending == Ending::consumer_leaves && received == request.until) break;
    auto slot = ring.acquire_read(&cancel);
    if (!slot) {
      EXPECT_EQ(slot.error().code, request.ending == Ending::producer_fails ? ErrorCode::io : ErrorCode::cancelled);
      break;
    }
    if (!*slot) break;
    EXPECT_EQ((*slot)->header().number, received++);
    held.push_back(std::move(**slot));
    const auto is_next = [&] { return !held.empty() && held.front().header().number + ring.slots() == received; };
    while (is_next() || (!held.empty() && random() % 2 == 0)) {
      const auto one = held.begin() + static_cast<std::ptrdiff_t>(is_next() ? 0 : random() % held.size());
      EXPECT_EQ(checksum(one->memory()), one->header().checksum);
      held.erase(one);
    }
  }
  ring.close();
  return received;
}

TEST(RingStressTest, EveryEndingLeavesAllSlotsFreeAndTheNextRequestIsServed) {
  for (const size_t slots : {1u, 2u, 3u, 8u}) {
    std::vector<float> memory(slots * 16);
    Rows ring{std::span<float>(memory), slots};
    std::mt19937 random(static_cast<uint32_t>(slots));
    for (int round = 0; round < 400; ++round) {
      const auto ending = static_cast<Ending>(random() % 4);
      const uint64_t items = 1 + random() % 40;
      const Request request{
          .ending = ending, .items = items, .until = random() % items, .seed = static_cast<uint32_t>(random())};
      std::atomic<bool> cancel{false};
      std::thread producer([&] { produce(ring, request, cancel); });
      const uint64_t received = consume(ring, request, cancel);
      producer.join();
      if (ending == Ending::finishes) {
        EXPECT_EQ(received, items);
      } else if (ending != Ending::is_cancelled) {
        EXPECT_EQ(received, request.until);
      }
      ring.reset();  // stops the program where a slot is not FREE
    }
  }
}

}  // namespace
}  // namespace nanomind
