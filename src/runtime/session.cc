// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/batch.h"

namespace nanomind {

Result<std::unique_ptr<Session>> LocalSession::open(const SessionHost& host, const SessionOptions& options) {
  auto sequence = TRY(Sequence::open(host, options));  // before there is memory that its failure would lose
  return std::unique_ptr<Session>(new LocalSession(host, std::move(sequence)));
}

Result<LocalSession::Evaluated> LocalSession::step(std::span<const TokenId> tokens, int64_t outputs,
                                                   const std::atomic<bool>* cancel) {
  const auto count = static_cast<int64_t>(tokens.size());
  int64_t rows = TRY(sequence_->make_room(std::min(count, host_.max_tokens)));
  if (host_.sight != nullptr) rows = host_.sight->fit(tokens, rows);
  if (rows == 0)
    return fail(ErrorCode::out_of_memory, "The cache has too little room for a picture, which is read at once.");
  if (rows < count) outputs = 0;
  wanted_.resize(static_cast<size_t>(outputs));
  std::iota(wanted_.begin(), wanted_.end(), static_cast<int32_t>(rows - outputs));
  pictures_.clear();
  const std::span<const TokenId> now = tokens.first(static_cast<size_t>(rows));
  if (host_.sight != nullptr) TRY(host_.sight->append_inputs(sequence_->tokens(), now, cancel, pictures_));
  const SequenceRows sequence = sequence_->rows(rows);
  const auto out = host_.executable->run({.tokens = now,
                                          .given = pictures_.given,
                                          .sequences = {&sequence, 1},
                                          .where = pictures_.where,
                                          .groups = pictures_.groups,
                                          .outputs = wanted_,
                                          .kv_cache = &host_.cache->buffer(),
                                          .states = host_.states->buffer(),
                                          .cancel = cancel});
  if (host_.sight != nullptr) host_.sight->done();
  if (!out) {
    sequence_->recover();
    return std::unexpected(out.error());
  }
  sequence_->commit(now);
  return Evaluated{.tokens = rows, .out = *out};
}

Result<void> LocalSession::extend(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) {
  while (!tokens.empty()) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return fail(ErrorCode::cancelled, "Stopped.");
    const Evaluated done = TRY(step(tokens, 1, cancel));
    if (done.out.rows > 0) logits_ = done.out.row(0);
    tokens = tokens.subspan(static_cast<size_t>(done.tokens));
  }
  return {};
}

Result<void> LocalSession::feed(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) {
  TRY(sequence_->check_prompt(tokens));
  const std::span<const TokenId> rest = tokens.subspan(static_cast<size_t>(sequence_->match(tokens)));
  if (host_.sight != nullptr) host_.sight->expect(rest, cancel);
  const Result<void> fed = feed_rest(rest, cancel);
  if (host_.sight != nullptr) host_.sight->end(cancel);
  return fed;
}

Result<void> LocalSession::feed_rest(std::span<const TokenId> rest, const std::atomic<bool>* cancel) {
  if (sequence_->recurrent() && rest.size() > 1) {
    // Where another turn, or the same question again, will begin.
    TRY(extend(rest.first(rest.size() - 1), cancel));
    sequence_->take_snapshot();
    rest = rest.last(1);
  }
  return extend(rest, cancel);
}

Result<Generation> LocalSession::generate(std::span<const TokenId> prompt, const GenerateOptions& options) {
  LocalBatch batch(host_);
  Result<Generation> result;
  TRY(batch.add(*this, prompt, options, [&](Result<Generation> generation) { result = std::move(generation); }));
  while (batch.step()) {
  }
  return result;
}

Result<void> LocalSession::score(std::span<const TokenId> tokens, int64_t first,
                                 const std::function<void(int64_t, std::span<const float>)>& on_row) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (first < 0 || first > count)
    return fail(ErrorCode::invalid_argument, "The first position to score is outside the text.");
  if (count > host_.capacity) return fail(ErrorCode::context_full, "The text to score does not fit the context.");
  sequence_->rewind(0);
  TRY(extend(tokens.first(static_cast<size_t>(first)), nullptr));
  for (int64_t at = first; at < count;) {
    const int64_t n = std::min({count - at, host_.max_outputs, host_.max_tokens});
    const Evaluated done = TRY(step(tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n)), n, nullptr));
    if (done.tokens < n)
      return fail(ErrorCode::out_of_memory, "Other sessions leave too little of the cache to score the text; end one.");
    for (int64_t i = 0; i < n; ++i) on_row(at + i, done.out.row(i));
    at += n;
  }
  return {};
}

}  // namespace nanomind
