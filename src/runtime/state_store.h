// SPDX-License-Identifier: Apache-2.0
// Slots for what recurrent models keep of a sequence: one for each open session, and some for snapshots, because such a
// state cannot be rolled back token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace nanomind {

class StateStore {
 public:
  // `slot_bytes` may be 0 (a model without states): then there is one slot for everybody.
  static Result<StateStore> create(Device& device, size_t slot_bytes, int32_t slots);

  bool needed() const { return slot_bytes_ > 0; }
  // A free slot, or nothing.
  std::optional<int32_t> acquire();
  void release(int32_t slot);
  void copy(int32_t from, int32_t to);
  std::span<std::byte> slot(int32_t slot);

  Buffer* buffer() { return buffer_.get(); }

 private:
  size_t slot_bytes_ = 0;
  std::unique_ptr<Buffer> buffer_;
  std::vector<int32_t> free_;
};

// Snapshots of one session's state, at most a few.
class Snapshots {
 public:
  explicit Snapshots(StateStore& store) : store_(store) {}
  ~Snapshots() { drop_after(-1); }
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Keeps the state of `slot`, which is that after `position` tokens; the oldest gives way when there is no room. Those
  // at and after `position` are dropped.
  void take(int32_t slot, int64_t position);
  // Puts the latest state at or before `position` into `slot` and returns its position; 0 when there is none (a state
  // counts as new there). Later ones are dropped.
  int64_t restore(int32_t slot, int64_t position);
  // Drops those at first < position < last.
  void drop_between(int64_t first, int64_t last);

  struct Snapshot {
    int64_t position = 0;
    int32_t slot = 0;
  };
  std::span<const Snapshot> kept() const { return kept_; }

 private:
  void drop_after(int64_t position);

  StateStore& store_;
  std::vector<Snapshot> kept_;  // by position, ascending
};

}  // namespace nanomind
