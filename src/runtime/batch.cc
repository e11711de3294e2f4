// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch.h"

#include <algorithm>
#include <utility>

#include "runtime/session.h"

namespace nanomind {

Result<void> LocalBatch::add(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options,
                             std::function<void(Result<Generation>)> on_end) {
  // There is no other kind of session.
  auto& local = static_cast<LocalSession&>(session);
  if (&local.host() != &host_) return fail(ErrorCode::invalid_argument, "The session belongs to another engine.");
  Sequence& sequence = local.sequence();
  for (const Member& member : members_) {
    if (&member.answer->sequence() == &sequence)
      return fail(ErrorCode::invalid_argument, "The session is still writing an answer.");
  }
  members_.push_back(
      {.answer = TRY(Answer::begin(host_, sequence, prompt, options)), .on_end = std::move(on_end), .error = {}});
  if (host_.sight != nullptr)
    host_.sight->expect(prompt.subspan(static_cast<size_t>(sequence.length())), options.cancel);
  return {};
}

bool LocalBatch::step() {
  plan();
  if (!working_.empty()) run();
  report_ended();
  return !members_.empty();
}

void LocalBatch::plan() {
  tokens_.clear();
  pictures_.clear();
  sequences_.clear();
  outputs_.clear();
  working_.clear();
  for (Member& member : members_) {
    if (member.answer->writing()) plan(member);
  }
  for (Member& member : members_) {
    if (!member.answer->writing()) plan(member);
  }
}

void LocalBatch::plan(Member& member) {
  const auto rows = static_cast<int64_t>(tokens_.size());
  const Answer::Most most{.tokens = host_.max_tokens - rows,
                          .outputs = host_.max_outputs - static_cast<int64_t>(outputs_.size()),
                          .drafts = members_.size() == 1};
  if (most.tokens < 1 || most.outputs < 1) return;
  const Result<Answer::Work> work = member.answer->next(most);
  if (!work) {
    member.error = work.error();
    return;
  }
  if (work->tokens.empty()) return;
  if (host_.sight != nullptr) {
    const auto found = host_.sight->append_inputs(member.answer->sequence().tokens(), work->tokens,
                                                  member.answer->cancel_flag(), pictures_);
    if (!found) return give_up(member, found.error());
  }
  const auto count = static_cast<int64_t>(work->tokens.size());
  member.work = *work;
  member.first_output = static_cast<int64_t>(outputs_.size());
  sequences_.push_back(member.answer->sequence().rows(count));
  tokens_.insert(tokens_.end(), work->tokens.begin(), work->tokens.end());
  for (int64_t i = count - work->outputs; i < count; ++i) outputs_.push_back(static_cast<int32_t>(rows + i));
  working_.push_back(&member);
}

void LocalBatch::give_up(Member& member, const Error& error) {
  if (error.code == ErrorCode::cancelled)
    member.answer->end(FinishReason::cancelled);
  else
    member.error = error;
}

void LocalBatch::run() {
  const auto out =
      host_.executable->run({.tokens = tokens_,
                             .given = pictures_.given,
                             .sequences = sequences_,
                             .where = pictures_.where,
                             .groups = pictures_.groups,
                             .outputs = outputs_,
                             .kv_cache = &host_.cache->buffer(),
                             .states = host_.states->buffer(),
                             // One of several does not stop the others.
                             .cancel = working_.size() == 1 ? working_[0]->answer->cancel_flag() : nullptr});
  if (host_.sight != nullptr) host_.sight->done();
  for (Member* member : working_) {
    if (out) {
      if (const Result<void> taken = member->answer->take(member->work, *out, member->first_output); !taken)
        member->error = taken.error();
      continue;
    }
    member->answer->sequence().recover();
    give_up(*member, out.error());
  }
}

void LocalBatch::report_ended() {
  for (size_t i = 0; i < members_.size();) {
    if (!members_[i].error && !members_[i].answer->ended()) {
      ++i;
      continue;
    }
    // Out of the list first: the function may add another.
    Member member = std::move(members_[i]);
    members_.erase(members_.begin() + static_cast<int64_t>(i));
    if (host_.sight != nullptr) host_.sight->end(member.answer->cancel_flag());
    if (member.error) {
      member.on_end(std::unexpected(std::move(*member.error)));
    } else {
      member.on_end(std::move(*member.answer).finish());
    }
  }
}

}  // namespace nanomind
