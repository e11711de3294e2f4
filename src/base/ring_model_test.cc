// SPDX-License-Identifier: Apache-2.0
// The ring under every interleaving of its atomic operations: two slots, three items, one producer, one consumer, and
// what may happen on the way. The exploration is complete (see base/test_interleavings.h for what a model leaves out).
// Of every schedule is asked: no slot is in two hands, no access to a slot's memory is unordered, items come in order
// and none is lost, nobody waits forever, and all slots are FREE at the end.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "base/ring.h"
#include "base/test_interleavings.h"

namespace nanomind {
namespace {

constexpr int kItems = 3;
constexpr size_t kSlots = 2;
constexpr int kHolding = 100;  // in what a thread remembers: it has the slot of that item

struct Item {
  int number = 0;
};

using ModelRing = BasicRing<ModelAtomic, Item, int>;

// What all variants have in common: a ring, and a watch on who touches its memory.
struct RingModel {
  std::array<int, kSlots> memory{};
  std::array<ModelPlain, kSlots> touched{};
  std::array<bool, kSlots> held{};
  ModelRing ring{std::span<int>(memory), kSlots};
  int received = 0;

  size_t index(std::span<int> slot) const { return static_cast<size_t>(slot.data() - memory.data()); }
  void take(std::span<int> slot) { model_expect(!std::exchange(held[index(slot)], true), "a slot is in two hands"); }
  void let_go(std::span<int> slot) { held[index(slot)] = false; }

  // Writes item `number`; false: the ring wants no more.
  bool send(int number, const ModelRing::CancelFlag* cancel = nullptr) {
    model_forget(number);
    auto slot = ring.acquire_write(cancel);
    if (!slot) {
      model_expect(slot.error().code == ErrorCode::cancelled, "a producer can only be cancelled");
      return false;
    }
    model_forget(kHolding + number);
    take(slot->memory());
    touched[index(slot->memory())].write();
    slot->memory()[0] = number;
    let_go(slot->memory());
    slot->publish({number});
    return true;
  }
  // Takes a slot and writes into it, then thinks better of it.
  void send_nothing() {
    auto slot = ring.acquire_write();
    if (!slot) return;
    take(slot->memory());
    touched[index(slot->memory())].write();
    let_go(slot->memory());
  }
  // Looks at the next item.
  void receive(const ModelRing::ReadSlot& slot) {
    take(slot.memory());
    touched[index(slot.memory())].read();
    model_expect(slot.header().number == received && slot.memory()[0] == received, "items come in order");
    ++received;
  }
  // Reads until there is nothing more; true: the producer has finished.
  bool drain(const ModelRing::CancelFlag* cancel = nullptr) {
    for (;;) {
      model_forget(received);
      auto slot = ring.acquire_read(cancel);
      if (!slot || !*slot) return slot.has_value();
      model_forget(kHolding + received);
      receive(**slot);
      let_go((*slot)->memory());
    }
  }
  void check_free() { ring.reset(); }  // stops the program otherwise
};

// How many schedules there are does not vary; far fewer than now would mean that the model has stopped looking.
void expect_sound(const Exploration& exploration, uint64_t schedules_min) {
  EXPECT_EQ(exploration.failure, "") << "in schedule " << exploration.schedules;
  EXPECT_GT(exploration.schedules, schedules_min);
  testing::Test::RecordProperty("schedules", static_cast<int>(exploration.schedules));
  testing::Test::RecordProperty("states", static_cast<int>(exploration.states));
}

TEST(RingModelTest, AllItemsComeInOrder) {
  struct Instance : RingModel {
    std::vector<std::function<void()>> threads() {
      return {[this] {
                for (int i = 0; i < kItems; ++i) model_expect(send(i), "all are sent");
                ring.finish();
              },
              [this] { model_expect(drain(), "the producer finishes"); }};
    }
    void check() {
      model_expect(received == kItems, "all are received");
      check_free();
    }
  };
  expect_sound(explore<Instance>(), 10000);
}

TEST(RingModelTest, SeveralSlotsAreHeldAndLetGoInAnyOrder) {
  struct Instance : RingModel {
    std::vector<std::function<void()>> threads() {
      return {[this] {
                for (int i = 0; i < kItems; ++i) model_expect(send(i), "all are sent");
                ring.finish();
              },
              [this] {
                auto first = ring.acquire_read();
                model_forget(kHolding);
                receive(**first);
                auto second = ring.acquire_read();
                model_forget(kHolding + 1);
                receive(**second);
                let_go((*second)->memory());
                second->reset();
                let_go((*first)->memory());
                first->reset();
                model_expect(drain(), "the producer finishes");
              }};
    }
    void check() {
      model_expect(received == kItems, "all are received");
      check_free();
    }
  };
  expect_sound(explore<Instance>(), 4500);
}

TEST(RingModelTest, ASlotThatIsNotPublishedIsWrittenNext) {
  struct Instance : RingModel {
    std::vector<std::function<void()>> threads() {
      return {[this] {
                model_expect(send(0), "the first is sent");
                send_nothing();
                model_expect(send(1) && send(2), "the others are sent");
                ring.finish();
              },
              [this] { model_expect(drain(), "the producer finishes"); }};
    }
    void check() {
      model_expect(received == kItems, "all are received");
      check_free();
    }
  };
  expect_sound(explore<Instance>(), 10000);
}

TEST(RingModelTest, AProducerThatFailsIsHeardAfterItsItems) {
  struct Instance : RingModel {
    bool told = false;
    std::vector<std::function<void()>> threads() {
      return {[this] {
                model_expect(send(0) && send(1), "both are sent");
                ring.fail_with({ErrorCode::io, "The picture is torn."});
              },
              [this] { told = !drain(); }};
    }
    void check() {
      model_expect(told && received == 2, "what was sent, then the error");
      check_free();
    }
  };
  expect_sound(explore<Instance>(), 3000);
}

// The consumer leaves after one item, with the next, if it takes that too, still in its hand.
TEST(RingModelTest, AConsumerThatClosesEndsTheProducer) {
  struct Instance : RingModel {
    std::vector<std::function<void()>> threads() {
      return {[this] {
                for (int i = 0; i < kItems && send(i); ++i) continue;
                ring.finish();
              },
              [this] {
                auto slot = ring.acquire_read();
                receive(**slot);
                ring.close();
                let_go((*slot)->memory());
                slot->reset();
                model_expect(ring.acquire_read().error().code == ErrorCode::cancelled, "a closed ring gives nothing");
              }};
    }
    void check() { check_free(); }
  };
  expect_sound(explore<Instance>(), 7500);
}

TEST(RingModelTest, AConsumerMayCloseAtAnyTime) {
  struct Instance : RingModel {
    std::vector<std::function<void()>> threads() {
      return {[this] {
                for (int i = 0; i < kItems && send(i); ++i) continue;
                ring.finish();
              },
              [this] { ring.close(); }};
    }
    void check() { check_free(); }
  };
  expect_sound(explore<Instance>(), 400);
}

// Whoever waits is stopped from outside, and both together; these with one item, as three threads have many schedules.
TEST(RingModelTest, ACancelFlagEndsAProducerThatWaits) {
  struct Instance : RingModel {
    ModelRing::CancelFlag cancel{false};
    std::vector<std::function<void()>> threads() {
      return {[this] { model_expect(!(send(0, &cancel) && send(1, &cancel) && send(2, &cancel)), "the flag ends it"); },
              [this] {
                cancel.store(true);
                ring.wake();
              }};
    }
    void check() {
      ring.close();
      check_free();
    }
  };
  expect_sound(explore<Instance>(), 150);
}

TEST(RingModelTest, ACancelFlagEndsAConsumerThatWaits) {
  struct Instance : RingModel {
    ModelRing::CancelFlag cancel{false};
    std::vector<std::function<void()>> threads() {
      return {[this] { model_expect(!drain(&cancel), "the flag ends it"); },
              [this] {
                cancel.store(true);
                ring.wake();
              }};
    }
    void check() { check_free(); }
  };
  expect_sound(explore<Instance>(), 40);
}

TEST(RingModelTest, ACancelFlagEndsBothSides) {
  struct Instance : RingModel {
    ModelRing::CancelFlag cancel{false};
    std::vector<std::function<void()>> threads() {
      return {[this] { send(0, &cancel); },  // only the flag ends the consumer
              [this] {
                model_expect(!drain(&cancel), "the flag ends the consumer");
                ring.close();
              },
              [this] {
                cancel.store(true);
                ring.wake();
              }};
    }
    void check() { check_free(); }
  };
  expect_sound(explore<Instance>(), 9000);
}

// That the model finds what it looks for: the two classic mistakes in miniature.
TEST(RingModelTest, TheModelFindsALostWakeUp) {
  struct Instance {
    ModelAtomic<int> ready{0};
    ModelAtomic<int> asleep{0};
    std::vector<std::function<void()>> threads() {
      return {[this] {
                ready.store(1);
                if (asleep.load() == 1) asleep.notify_one();
              },
              [this] {
                if (ready.load() == 1) return;
                asleep.store(1);
                asleep.wait(1);
              }};
    }
    void check() {}
  };
  EXPECT_EQ(explore<Instance>().failure, "all threads wait");
}

TEST(RingModelTest, TheModelFindsAMissingRelease) {
  struct Instance {
    ModelAtomic<int> ready{0};
    ModelPlain data;
    std::vector<std::function<void()>> threads() {
      return {[this] {
                data.write();
                ready.store(1, std::memory_order_relaxed);
              },
              [this] {
                if (ready.load(std::memory_order_acquire) == 1) data.read();
              }};
    }
    void check() {}
  };
  EXPECT_EQ(explore<Instance>().failure, "a read races with a write");
}

}  // namespace
}  // namespace nanomind
