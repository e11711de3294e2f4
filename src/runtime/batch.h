// SPDX-License-Identifier: Apache-2.0
// Steps that several answers share: each evaluates what every answer needs next, tokens of those that write before
// prompts of those that begin, as the weights are read once for all of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/answer.h"
#include "runtime/engine.h"
#include "runtime/sequence.h"

namespace nanomind {

class LocalBatch final : public Batch {
 public:
  explicit LocalBatch(const SessionHost& host) : host_(host) {}

  Result<void> add(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options,
                   std::function<void(Result<Generation>)> on_end) override;
  bool step() override;

 private:
  struct Member {
    std::unique_ptr<Answer> answer;
    std::function<void(Result<Generation>)> on_end;
    std::optional<Error> error;
    Answer::Work work{};
    int64_t first_output = 0;  // of its rows in the step
  };
  void plan();
  void plan(Member& member);
  // Its part of a step failed, or was cancelled.
  static void give_up(Member& member, const Error& error);
  void run();
  void report_ended();

  const SessionHost& host_;
  std::vector<Member> members_;
  std::vector<TokenId> tokens_;
  PictureInputs pictures_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> outputs_;
  std::vector<Member*> working_;  // in the order of the step's rows
};

}  // namespace nanomind
