// SPDX-License-Identifier: Apache-2.0
#include "runtime/sequence.h"

#include <fmt/format.h>

#include <algorithm>

namespace nanomind {
namespace {

int64_t blocks_for(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

}  // namespace

Result<std::unique_ptr<Sequence>> Sequence::open(const SessionHost& host, const SessionOptions& options) {
  if (options.overflow == Overflow::slide) {
    // Some blocks must be left to slide.
    const int64_t least = (blocks_for(options.keep) + 2) * kKvBlockTokens;
    if (options.keep < 0 || host.capacity < least) {
      return fail(
          ErrorCode::invalid_argument,
          fmt::format("To keep the first {} tokens of an endless chat a context of {} tokens or more is needed, "
                      "but this one has {}; choose a larger --ctx.",
                      options.keep, least, host.capacity));
    }
    TRY(host.executable->rotate_keys(host.cache->buffer(), {}, 0));
  }
  const std::optional<int32_t> state = host.states->acquire();
  if (!state) return fail(ErrorCode::out_of_memory, "All states of this engine are used by open sessions; end one.");
  return std::unique_ptr<Sequence>(new Sequence(host, options, *state));
}

Sequence::Sequence(const SessionHost& host, const SessionOptions& options, int32_t state)
    : host_(host),
      options_(options),
      keep_(blocks_for(options.keep) * kKvBlockTokens),
      state_(state),
      snapshots_(*host.states) {
  tokens_.reserve(static_cast<size_t>(host.capacity));
  blocks_.reserve(static_cast<size_t>(blocks_for(host.capacity)));
}

Sequence::~Sequence() {
  truncate(0);
  host_.states->release(state_);
  if (marked_state_) host_.states->release(*marked_state_);
}

int64_t Sequence::match(std::span<const TokenId> tokens) {
  const auto [mine, theirs] = std::ranges::mismatch(tokens_, tokens);
  int64_t length = rewind(std::min<int64_t>(mine - tokens_.begin(), static_cast<int64_t>(tokens.size()) - 1));
  while (host_.sight != nullptr && !host_.sight->may_begin(tokens, length)) length = rewind(length - 1);
  return length;
}

int64_t Sequence::rewind(int64_t length) {
  if (length >= this->length()) return this->length();
  if (dropped_ > 0 && length < keep_ + dropped_) length = std::min(length, keep_);
  if (recurrent()) length = snapshots_.restore(state_, length);
  truncate(length);
  return length;
}

void Sequence::truncate(int64_t length) {
  tokens_.resize(static_cast<size_t>(length));
  if (length <= keep_) dropped_ = 0;
  const auto needed = static_cast<size_t>(blocks_for(cached()));
  while (blocks_.size() > needed) {
    host_.cache->release(blocks_.back());
    blocks_.pop_back();
  }
}

Result<void> Sequence::check_prompt(std::span<const TokenId> tokens) const {
  if (tokens.empty())
    return fail(ErrorCode::invalid_argument, "There is nothing to evaluate: the prompt has no tokens.");
  if (options_.overflow == Overflow::stop && static_cast<int64_t>(tokens.size()) > host_.capacity) {
    return fail(ErrorCode::context_full,
                fmt::format("The prompt has {} tokens, but the context holds {}; shorten it or choose a larger --ctx.",
                            tokens.size(), host_.capacity));
  }
  return {};
}

Result<int64_t> Sequence::make_room(int64_t wanted) {
  if (cached() >= host_.capacity) {
    if (options_.overflow == Overflow::stop)
      return fail(ErrorCode::context_full, fmt::format("The context of {} tokens is full.", host_.capacity));
    TRY(slide());
  }
  const int64_t free = std::min(wanted, host_.capacity - cached());
  while (static_cast<int64_t>(blocks_.size()) * kKvBlockTokens < cached() + free) {
    const Result<int32_t> block = host_.cache->acquire();
    // Rows for which there are blocks already are better than none.
    if (const int64_t some = static_cast<int64_t>(blocks_.size()) * kKvBlockTokens - cached(); !block && some > 0)
      return some;
    blocks_.push_back(TRY(block));
  }
  return free;
}

Result<void> Sequence::slide() {
  const int64_t kept = keep_ / kKvBlockTokens, movable = static_cast<int64_t>(blocks_.size()) - kept;
  const int64_t going = std::max<int64_t>(1, movable / 2);
  const auto first = blocks_.begin() + kept, last = first + going;
  TRY(host_.executable->rotate_keys(host_.cache->buffer(), {last, blocks_.end()}, going * kKvBlockTokens));
  std::for_each(first, last, [&](int32_t block) { host_.cache->release(block); });
  blocks_.erase(first, last);
  dropped_ += going * kKvBlockTokens;
  snapshots_.drop_between(keep_, keep_ + dropped_);
  return {};
}

SequenceRows Sequence::rows(int64_t count) const {
  return {.blocks = blocks_, .past = cached(), .rows = count, .state = state_};
}

void Sequence::commit(std::span<const TokenId> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }

void Sequence::recover() {
  if (recurrent()) truncate(snapshots_.restore(state_, length()));
}

void Sequence::take_snapshot() { snapshots_.take(state_, length()); }

bool Sequence::mark() {
  if (!recurrent()) {
    marked_length_ = length();
    return true;
  }
  if (!marked_state_) marked_state_ = host_.states->acquire();
  if (!marked_state_) return false;
  host_.states->copy(state_, *marked_state_);
  marked_length_ = length();
  return true;
}

void Sequence::rollback() {
  if (recurrent()) host_.states->copy(*marked_state_, state_);
  truncate(marked_length_);
}

}  // namespace nanomind
