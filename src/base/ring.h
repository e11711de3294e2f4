// SPDX-License-Identifier: Apache-2.0
// Ring: a bounded pool of slots through which one thread hands rows to another, in order and without copying them: the
// producer writes where the consumer reads. Each slot goes FREE -> WRITING -> READY -> READING -> FREE; a producer
// without a FREE slot waits, so a slow consumer slows it down instead of filling memory.
//
// One thread produces and one consumes. Calls are marked with the side that may make them; the ring and the memory of
// its slots outlive the calls of both.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace nanomind {

enum class SlotState : uint32_t { free, writing, ready, reading };

// Since the ring was made; `depth` is now. A snapshot: counts of one moment each, not of the same moment.
struct RingStatistics {
  uint64_t depth = 0;           // slots that are READY
  uint64_t published = 0;       // slots
  uint64_t bytes = 0;           // that were published
  uint64_t producer_waits = 0;  // calls that found no FREE slot,
  uint64_t consumer_waits = 0;  // and none that was READY
};

// Header says what the rows of a slot are. Atomic is std::atomic (Ring, below), or a stand-in that a model check steps.
template <template <typename> class Atomic, typename Header, typename Element>
class BasicRing {
  static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<Element>);
  struct Slot;

 public:
  // Ends a wait from any thread: set the flag, then call wake().
  using CancelFlag = Atomic<bool>;

  // A slot in WRITING, owned by the producer. Destroyed without publish() it is FREE again, and the next one written.
  class WriteSlot {
   public:
    std::span<Element> memory() const { return slot_->memory; }
    // Hands the first `used` elements to the consumer; the handle is empty afterwards.
    void publish(const Header& header, size_t used) {
      BasicRing& ring = *slot_.get_deleter().ring;
      ring.publish(*slot_.release(), header, used);
    }
    void publish(const Header& header) { publish(header, memory().size()); }

   private:
    friend BasicRing;
    struct Abandon {
      BasicRing* ring;
      void operator()(Slot* slot) const { slot->state.store(SlotState::free, std::memory_order_relaxed); }
    };
    WriteSlot(BasicRing* ring, Slot* slot) : slot_(slot, Abandon{ring}) {}
    std::unique_ptr<Slot, Abandon> slot_;
  };

  // A slot in READING, owned by the consumer; FREE when destroyed. Several may be held, and let go in any order: the
  // producer goes on when the oldest is.
  class ReadSlot {
   public:
    const Header& header() const { return slot_->header; }
    // What the producer wrote, to be changed in place if the consumer likes.
    std::span<Element> memory() const { return slot_->memory.first(slot_->used); }

   private:
    friend BasicRing;
    struct Release {
      BasicRing* ring;
      void operator()(Slot* slot) const { ring->release(*slot); }
    };
    ReadSlot(BasicRing* ring, Slot* slot) : slot_(slot, Release{ring}) {}
    std::unique_ptr<Slot, Release> slot_;
  };

  // One slot for each span; at least one, all of one size.
  explicit BasicRing(std::span<const std::span<Element>> memory)
      : slots_(std::make_unique<Slot[]>(memory.size())), count_(memory.size()) {
    CHECK(count_ > 0);
    for (size_t i = 0; i < count_; ++i) {
      CHECK(memory[i].size() == memory[0].size());
      slots_[i].memory = memory[i];
    }
  }
  // `count` slots of one size that make up `memory`.
  BasicRing(std::span<Element> memory, size_t count)
      : BasicRing(std::span<const std::span<Element>>(cut(memory, count))) {}
  ~BasicRing() = default;
  BasicRing(const BasicRing&) = delete;
  BasicRing& operator=(const BasicRing&) = delete;

  size_t slots() const { return count_; }

  // Producer. Waits for a FREE slot. `cancelled` once the consumer has closed or `cancel` (may be null) is set. One
  // slot at a time, and none after finish() or fail_with().
  Result<WriteSlot> acquire_write(const CancelFlag* cancel = nullptr) {
    CHECK(!ended_);
    Slot& slot = slot_at(next_write_);
    return wait<WriteSlot>(producer_events_, producer_waits_, cancel, [&]() -> std::optional<Result<WriteSlot>> {
      if (closed_.load(std::memory_order_relaxed))
        return fail(ErrorCode::cancelled, "The reader of the ring has closed it.");
      // Acquire: the consumer's last reads of the slot come before what is written now.
      const SlotState state = slot.state.load(std::memory_order_acquire);
      CHECK(state != SlotState::writing);
      if (state != SlotState::free) return std::nullopt;
      slot.state.store(SlotState::writing, std::memory_order_relaxed);  // only its owner changes a FREE slot
      return WriteSlot(this, &slot);
    });
  }

  // Producer. No more slots will come: the consumer gets those that are published, and then the end.
  void finish() { end(End::finished); }

  // Producer. The consumer gets the slots that are published, and then `error`, so that what it sees does not depend on
  // who was faster.
  void fail_with(Error error) {
    error_ = std::move(error);
    end(End::failed);
  }

  // Consumer. Waits for the next slot. Nothing after the last one; the producer's error, if it failed; `cancelled` once
  // `cancel` (may be null) is set, and after close(). Of slots() slots that are read in a row, the first is let go
  // before the next call: it is what would come.
  Result<std::optional<ReadSlot>> acquire_read(const CancelFlag* cancel = nullptr) {
    using Answer = std::optional<ReadSlot>;
    if (closed_.load(std::memory_order_relaxed)) return fail(ErrorCode::cancelled, "The ring was closed.");
    Slot& slot = slot_at(next_read_);
    return wait<Answer>(consumer_events_, consumer_waits_, cancel, [&]() -> std::optional<Result<Answer>> {
      // The end is looked at before the slot: what was published before it cannot be overlooked then.
      const End end = end_.load(std::memory_order_acquire);
      // Acquire: what the producer wrote into the slot is seen.
      const SlotState state = slot.state.load(std::memory_order_acquire);
      CHECK(state != SlotState::reading);  // or it would wait for itself
      if (state == SlotState::ready) {
        slot.state.store(SlotState::reading, std::memory_order_relaxed);  // only the consumer changes a READY slot
        ++next_read_;
        return Answer(ReadSlot(this, &slot));
      }
      if (end == End::finished) return Answer();
      if (end == End::failed) return std::unexpected(error_);
      return std::nullopt;
    });
  }

  // Consumer. It wants no more: the producer's calls end with `cancelled`, and slots that nobody has read are FREE.
  // Slots that it holds stay its own.
  void close() {
    closed_.store(true);
    for (size_t i = 0; i < count_; ++i) drop(slots_[i]);
    signal(producer_events_);
  }

  // Any thread. Lets both sides look at their cancel flags again.
  void wake() {
    signal(producer_events_);
    signal(consumer_events_);
  }

  // Any thread that knows both sides to have ended (it has joined them, say): every slot is FREE then, and the ring is
  // as new but for its statistics.
  void reset() {
    for (size_t i = 0; i < count_; ++i) CHECK(slots_[i].state.load() == SlotState::free);
    next_write_ = next_read_ = 0;
    error_ = {};
    ended_ = false;
    end_.store(End::none);
    closed_.store(false);
  }

  // Any thread.
  RingStatistics statistics() const {
    RingStatistics result{.published = published_.load(std::memory_order_relaxed),
                          .bytes = bytes_.load(std::memory_order_relaxed),
                          .producer_waits = producer_waits_.load(std::memory_order_relaxed),
                          .consumer_waits = consumer_waits_.load(std::memory_order_relaxed)};
    for (size_t i = 0; i < count_; ++i)
      result.depth += slots_[i].state.load(std::memory_order_relaxed) == SlotState::ready ? 1 : 0;
    return result;
  }

 private:
  enum class End : uint32_t { none, finished, failed };

  // Whoever owns a slot by its state may touch the rest of it.
  struct alignas(64) Slot {
    Atomic<SlotState> state{SlotState::free};
    Header header{};
    size_t used = 0;
    std::span<Element> memory;
  };

  static std::vector<std::span<Element>> cut(std::span<Element> memory, size_t count) {
    CHECK(count > 0 && memory.size() % count == 0);
    const size_t size = memory.size() / count;
    std::vector<std::span<Element>> parts;
    for (size_t i = 0; i < count; ++i) parts.push_back(memory.subspan(i * size, size));
    return parts;
  }

  Slot& slot_at(uint64_t index) { return slots_[index % count_]; }

  // Looks, and sleeps between two looks until somebody has signalled. The count of events is read before the look, so
  // whatever changes after the look has changed the count, and the sleep does not begin.
  template <typename T, typename Look>
  Result<T> wait(Atomic<uint32_t>& events, std::atomic<uint64_t>& waits, const CancelFlag* cancel, const Look& look) {
    for (bool counted = false;; counted = true) {
      const uint32_t seen = events.load();
      if (cancel != nullptr && cancel->load()) return fail(ErrorCode::cancelled, "Stopped on request.");
      if (auto found = look()) return *std::move(found);
      if (!counted) count(waits, 1);
      events.wait(seen);
    }
  }

  // After the change that it tells of. Sequentially consistent, as the notification asks whether anybody sleeps, and
  // must not ask before the count has changed. The count may wrap: it would have to do so between a look and its sleep.
  static void signal(Atomic<uint32_t>& events) {
    events.fetch_add(1);
    events.notify_one();
  }

  void publish(Slot& slot, const Header& header, size_t used) {
    CHECK(used <= slot.memory.size() && !ended_);
    slot.header = header;
    slot.used = used;
    ++next_write_;
    count(published_, 1);
    count(bytes_, used * sizeof(Element));
    // READY is stored before `closed_` is read, and close() stores `closed_` before it reads the states, all of it
    // sequentially consistent: one of the two sees the other, so no slot stays READY that nobody will read.
    slot.state.store(SlotState::ready);
    if (closed_.load()) drop(slot);
    signal(consumer_events_);
  }

  // READY -> FREE. Both sides may try it on a closed ring; it happens once.
  static void drop(Slot& slot) {
    SlotState expected = SlotState::ready;
    slot.state.compare_exchange_strong(expected, SlotState::free);
  }

  void release(Slot& slot) {
    slot.state.store(SlotState::free, std::memory_order_release);
    signal(producer_events_);
  }

  void end(End how) {
    CHECK(!std::exchange(ended_, true));
    end_.store(how, std::memory_order_release);  // the error and all slots before it are seen with it
    signal(consumer_events_);
  }

  // One writer each. Beside the model, as nothing depends on them.
  static void count(std::atomic<uint64_t>& counter, uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::unique_ptr<Slot[]> slots_;
  size_t count_;

  // What one side writes often lies apart from what the other does. Indices only grow; the slot is index % count_.
  alignas(64) uint64_t next_write_ = 0;  // the producer's
  std::atomic<uint64_t> published_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> producer_waits_{0};
  bool ended_ = false;  // whether finish() or fail_with() was called
  Error error_;         // the producer's until end_ says failed, then the consumer's
  Atomic<End> end_{End::none};
  alignas(64) uint64_t next_read_ = 0;  // the consumer's
  std::atomic<uint64_t> consumer_waits_{0};
  Atomic<bool> closed_{false};
  alignas(64) Atomic<uint32_t> producer_events_{0};  // what a waiting producer should know of
  alignas(64) Atomic<uint32_t> consumer_events_{0};
};

template <typename Header, typename Element = float>
using Ring = BasicRing<std::atomic, Header, Element>;

}  // namespace nanomind
