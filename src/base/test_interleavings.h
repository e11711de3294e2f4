// SPDX-License-Identifier: Apache-2.0
// A model checker for tests of code that is parametrised by its atomic type: explore() runs a few threads,
// as fibers of one, one operation
// on a ModelAtomic at a time, in every order, and finds failed expectations, threads that all wait, and, by vector
// clocks, accesses to plain memory that nothing orders. Values are those of sequential consistency: each load sees the
// latest store, so an outcome that only a weaker machine shows as another value is not explored; a missing acquire or
// release is found all the same, as a race on what it should protect.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/test_fiber.h"

namespace nanomind {

inline constexpr size_t kModelThreads = 3;  // at most

// For each thread, how many of its operations are known to have happened before.
struct ModelClock {
  std::array<uint32_t, kModelThreads> ticks{};
  void join(const ModelClock& other) {
    for (size_t i = 0; i < kModelThreads; ++i) ticks[i] = std::max(ticks[i], other.ticks[i]);
  }
};

// The mixer is splitmix64's (Steele, Lea, Flood 2014), which has no value that it leaves alone, as 0 would be in a
// product.
inline uint64_t model_hash(uint64_t hash, uint64_t value) {
  uint64_t mixed = (hash ^ (value * 0xd6e8feb86659fd93u)) + 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

// What a state of the model consists of, beside the threads: atomics and plain memory.
class ModelCell {
 public:
  virtual ~ModelCell() = default;
  virtual uint64_t value() const = 0;
  virtual std::span<const ModelClock> clocks() const = 0;
};

// One run of the threads under one schedule.
class ModelRun {
 public:
  struct Choice {
    size_t taken = 0;
    size_t of = 0;
  };

  using Fibers = std::array<TestFiber, kModelThreads>;

  // The run that goes on now.
  static ModelRun*& current() {
    static thread_local ModelRun* run = nullptr;
    return run;
  }

  // Begins with the choices of `prefix`. `visited` are the states that earlier runs have met.
  ModelRun(std::vector<Choice> prefix, std::unordered_set<uint64_t>& visited, Fibers& fibers)
      : fibers_(fibers), choices_(std::move(prefix)), replayed_(choices_.size()), visited_(visited) {}

  void add(const ModelCell* cell) { cells_.push_back(cell); }

  void run(const std::vector<std::function<void()>>& bodies) {
    CHECK(bodies.size() <= kModelThreads);
    count_ = bodies.size();
    for (size_t i = 0; i < count_; ++i) fibers_[i].start([this, i, &body = bodies[i]] { live(i, body); });
    hand_over(kNobody);
    while (!all_done()) fibers_[running_].resume();
    count_ = 0;
  }

  void expect(bool holds, const char* what) {
    if (!holds && failure_.empty()) failure_ = what;
  }

  // Whether threads run: the instance is made before, and checked after.
  bool running() const { return count_ > 0; }
  size_t thread() const { return running_; }
  ModelClock& clock() { return threads_[running_].clock; }

  // Comes before an operation. Another thread may be chosen to go on.
  void step() { hand_over(running_); }
  // Comes after an operation: what the thread has learnt from it. What it does next is not part of what it has
  // released.
  void learn(uint64_t value) {
    threads_[running_].history = model_hash(threads_[running_].history, value);
    ++clock().ticks[running_];
  }
  // Where the thread forgets: nothing that it has learnt before makes a difference from here on but `summary`.
  void forget(uint64_t summary) { threads_[running_].history = model_hash(kMoved, summary); }
  // Sleeps until notify(cell).
  void block(const ModelCell* cell) {
    threads_[running_].status = Status::blocked;
    threads_[running_].waits_for = cell;
    hand_over(running_);
    learn(kMoved);
    if (stuck_) throw Stuck();
  }
  void notify(const ModelCell* cell) {
    for (Thread& thread : threads_) {
      if (thread.status == Status::blocked && thread.waits_for == cell) thread.status = Status::runnable;
    }
  }

  const std::string& failure() const { return failure_; }
  const std::vector<Choice>& choices() const { return choices_; }

 private:
  static constexpr size_t kNobody = kModelThreads;
  static constexpr uint64_t kMoved = 1;  // learnt where a thread goes on without an operation: it is elsewhere now
  struct Stuck {};
  enum class Status : uint8_t { runnable, blocked, done };
  struct Thread {
    Status status = Status::runnable;
    const ModelCell* waits_for = nullptr;
    uint64_t history = 0;  // of all that it has learnt; with its code, that is where it is and what it knows
    ModelClock clock;
  };

  void live(size_t self, const std::function<void()>& body) {
    learn(kMoved);
    try {
      body();
    } catch (const Stuck&) {
    }
    threads_[self].status = Status::done;
    hand_over(self);
  }

  // Chooses who goes on; the caller is suspended until that is itself, unless it is done.
  void hand_over(size_t self) {
    std::vector<size_t> options = runnable();
    if (options.empty()) {
      if (all_done()) return;
      expect(false, "all threads wait");
      stuck_ = true;  // each leaves its wait by an exception
      for (Thread& thread : std::span(threads_).first(count_))
        if (thread.status == Status::blocked) thread.status = Status::runnable;
      options = runnable();
    }
    running_ = options[choose(options.size())];
    if (running_ != self && self != kNobody && threads_[self].status != Status::done) fibers_[self].suspend();
  }

  // The running one first, as going on is cheaper than switching.
  std::vector<size_t> runnable() const {
    std::vector<size_t> result;
    for (size_t i = 0; i < count_; ++i) {
      const size_t candidate = (running_ + i) % count_;
      if (threads_[candidate].status == Status::runnable) result.push_back(candidate);
    }
    return result;
  }
  bool all_done() const {
    return std::all_of(threads_.begin(), threads_.begin() + static_cast<std::ptrdiff_t>(count_),
                       [](const Thread& thread) { return thread.status == Status::done; });
  }

  // Which of `options` ways to take. What follows a state that was met before is explored from there: this run only
  // ends what it began.
  size_t choose(size_t options) {
    if (options == 1 || stuck_) return 0;
    if (position_ < replayed_) return choices_[position_++].taken;
    if (known_ || !visited_.insert(state()).second) {
      known_ = true;
    } else {
      choices_.push_back({.taken = 0, .of = options});
    }
    return 0;
  }

  // Of clocks only the order counts: equal states are met after different numbers of operations.
  uint64_t state() const {
    uint64_t hash = 0;
    std::vector<const ModelClock*> clocks;
    for (const Thread& thread : std::span(threads_).first(count_)) {
      hash = model_hash(hash, thread.history);
      hash = model_hash(hash, static_cast<uint64_t>(thread.status));
      clocks.push_back(&thread.clock);
    }
    for (const ModelCell* cell : cells_) {
      hash = model_hash(hash, cell->value());
      for (const ModelClock& clock : cell->clocks()) clocks.push_back(&clock);
    }
    for (size_t thread = 0; thread < count_; ++thread) {
      std::vector<uint32_t> ranks;
      for (const ModelClock* clock : clocks) ranks.push_back(clock->ticks[thread]);
      std::ranges::sort(ranks);
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      for (const ModelClock* clock : clocks)
        hash = model_hash(hash,
                          static_cast<uint64_t>(std::ranges::lower_bound(ranks, clock->ticks[thread]) - ranks.begin()));
    }
    return hash;
  }

  Fibers& fibers_;
  std::vector<Choice> choices_;  // where there was one
  size_t replayed_;
  size_t position_ = 0;
  std::unordered_set<uint64_t>& visited_;
  bool known_ = false;
  bool stuck_ = false;
  size_t running_ = 0;
  size_t count_ = 0;
  std::array<Thread, kModelThreads> threads_;
  std::vector<const ModelCell*> cells_;
  std::string failure_;
};

// For threads of a run: see ModelRun. Expectations are what a test requires of every schedule.
inline void model_forget(int summary) { ModelRun::current()->forget(static_cast<uint64_t>(summary)); }
inline void model_expect(bool holds, const char* what) { ModelRun::current()->expect(holds, what); }

// Takes the place of std::atomic.
template <typename T>
class ModelAtomic : public ModelCell {
 public:
  explicit(false) ModelAtomic(T value) : value_(value) { ModelRun::current()->add(this); }
  ModelAtomic(const ModelAtomic&) = delete;
  ModelAtomic& operator=(const ModelAtomic&) = delete;

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    return operate([&](ModelRun& run) { acquire(run, order); });
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    operate([&](ModelRun& run) {
      value_ = value;
      released_ = releases(order) ? run.clock() : ModelClock();
    });
  }
  T fetch_add(T by, std::memory_order order = std::memory_order_seq_cst) {
    return operate([&](ModelRun& run) { modify(run, value_ + by, order); }) - by;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
    bool equal = false;
    const T after = operate([&](ModelRun& run) {
      equal = value_ == expected;
      if (equal)
        modify(run, desired, order);
      else
        acquire(run, order);
    });
    if (!equal) expected = after;
    return equal;
  }
  // Looks and falls asleep in one operation, and wakes up only when notified: what a futex promises at least.
  void wait(T old, std::memory_order order = std::memory_order_seq_cst) const {
    while (load(order) == old) ModelRun::current()->block(this);
  }
  void notify_one() {
    operate([&](ModelRun& run) { run.notify(this); });
  }
  void notify_all() { notify_one(); }

  uint64_t value() const override { return static_cast<uint64_t>(value_); }
  std::span<const ModelClock> clocks() const override { return {&released_, 1}; }

 private:
  static bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
  }
  static bool acquires(std::memory_order order) {
    return order != std::memory_order_relaxed && order != std::memory_order_release;
  }
  void acquire(ModelRun& run, std::memory_order order) const {
    if (acquires(order)) run.clock().join(released_);
  }
  // Goes on with the release sequence that it is part of.
  void modify(ModelRun& run, T value, std::memory_order order) {
    acquire(run, order);
    value_ = value;
    if (releases(order)) released_.join(run.clock());
  }
  template <typename Operation>
  T operate(const Operation& operation) const {
    ModelRun& run = *ModelRun::current();
    if (run.running()) run.step();
    operation(run);
    if (run.running()) run.learn(static_cast<uint64_t>(value_));
    return value_;
  }

  T value_;
  ModelClock released_;  // what a thread knows that acquires the value
};

// Stands for plain memory: says who has touched it, and is an expectation that every touch is ordered after those that
// it conflicts with. Touching it is no operation of its own.
class ModelPlain : public ModelCell {
 public:
  ModelPlain() { ModelRun::current()->add(this); }
  ModelPlain(const ModelPlain&) = delete;
  ModelPlain& operator=(const ModelPlain&) = delete;

  void write() {
    expect_after(touched_[kWrites], "a write races with a write");
    expect_after(touched_[kReads], "a write races with a read");
    touch(touched_[kWrites]);
  }
  void read() {
    expect_after(touched_[kWrites], "a read races with a write");
    touch(touched_[kReads]);
  }
  uint64_t value() const override { return 0; }
  std::span<const ModelClock> clocks() const override { return touched_; }

 private:
  static void expect_after(const ModelClock& touched, const char* what) {
    ModelRun& run = *ModelRun::current();
    for (size_t i = 0; i < kModelThreads; ++i) run.expect(touched.ticks[i] <= run.clock().ticks[i], what);
  }
  static void touch(ModelClock& touched) {
    ModelRun& run = *ModelRun::current();
    touched.ticks[run.thread()] = run.clock().ticks[run.thread()];
  }

  static constexpr size_t kWrites = 0, kReads = 1;
  std::array<ModelClock, 2> touched_;  // of each thread, the latest
};

struct Exploration {
  uint64_t schedules = 0;  // that were run
  uint64_t states = 0;     // from which more than one thread could go on
  std::string failure;     // of the first schedule that failed; empty: there was none
};

// Runs every schedule of the threads of an instance, but for parts that begin in a state which another schedule has
// met. Instance is made anew for each, has `std::vector<std::function<void()>> threads()`, and `void check()` for the
// end.
template <typename Instance>
Exploration explore() {
  Exploration result;
  std::unordered_set<uint64_t> visited;
  std::vector<ModelRun::Choice> choices;
  const auto fibers = std::make_unique<ModelRun::Fibers>();
  do {
    ModelRun run(std::move(choices), visited, *fibers);
    ModelRun::current() = &run;
    {
      Instance instance;
      run.run(instance.threads());
      if (run.failure().empty()) instance.check();
    }
    ModelRun::current() = nullptr;
    ++result.schedules;
    result.failure = run.failure();
    choices = run.choices();
    while (!choices.empty() && choices.back().taken + 1 == choices.back().of) choices.pop_back();
    if (!choices.empty()) ++choices.back().taken;
  } while (!choices.empty() && result.failure.empty());
  result.states = visited.size();
  return result;
}

}  // namespace nanomind
