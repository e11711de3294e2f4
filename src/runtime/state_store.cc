// SPDX-License-Identifier: Apache-2.0
#include "runtime/state_store.h"

#include <algorithm>
#include <cstring>

namespace nanomind {
namespace {

constexpr size_t kMostSnapshots = 4;  // of one session: the last turns of a conversation

}  // namespace

Result<StateStore> StateStore::create(Device& device, size_t slot_bytes, int32_t slots) {
  StateStore store;
  store.slot_bytes_ = slot_bytes;
  if (slot_bytes == 0) return store;
  store.buffer_ = TRY(device.allocate(slot_bytes * static_cast<size_t>(slots)));
  for (int32_t i = slots - 1; i >= 0; --i) store.free_.push_back(i);
  return store;
}

std::optional<int32_t> StateStore::acquire() {
  if (!needed()) return 0;
  if (free_.empty()) return std::nullopt;
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateStore::release(int32_t slot) {
  if (needed()) free_.push_back(slot);
}

void StateStore::copy(int32_t from, int32_t to) {
  if (!needed()) return;
  std::memcpy(slot(to).data(), slot(from).data(), slot_bytes_);
}

std::span<std::byte> StateStore::slot(int32_t slot) {
  if (!needed()) return {};
  return buffer_->bytes().subspan(static_cast<size_t>(slot) * slot_bytes_, slot_bytes_);
}

void Snapshots::take(int32_t slot, int64_t position) {
  if (!store_.needed() || position == 0) return;
  drop_after(position - 1);
  std::optional<int32_t> to = kept_.size() < kMostSnapshots ? store_.acquire() : std::nullopt;
  if (!to && !kept_.empty()) {
    to = kept_.front().slot;
    kept_.erase(kept_.begin());
  }
  if (!to) return;
  store_.copy(slot, *to);
  kept_.push_back({.position = position, .slot = *to});
}

int64_t Snapshots::restore(int32_t slot, int64_t position) {
  drop_after(position);
  if (kept_.empty()) return 0;
  store_.copy(kept_.back().slot, slot);
  return kept_.back().position;
}

void Snapshots::drop_between(int64_t first, int64_t last) {
  std::erase_if(kept_, [&](const Snapshot& snapshot) {
    if (snapshot.position <= first || snapshot.position >= last) return false;
    store_.release(snapshot.slot);
    return true;
  });
}

void Snapshots::drop_after(int64_t position) {
  while (!kept_.empty() && kept_.back().position > position) {
    store_.release(kept_.back().slot);
    kept_.pop_back();
  }
}

}  // namespace nanomind
