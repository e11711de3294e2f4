// SPDX-License-Identifier: Apache-2.0
// One answer in the making: which tokens of it are to be evaluated next, and what their logits lead to. It runs no
// steps itself (Batch does), so that several answers can share them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "runtime/draft.h"
#include "runtime/generation.h"
#include "runtime/sequence.h"
#include "runtime/text_output.h"
#include "runtime/token_chooser.h"

namespace nanomind {

class Answer {
 public:
  // Goes back to what `sequence` holds of the prompt. What the options ask for is checked first, so that nothing is
  // changed when it cannot be had: invalid_argument, context_full. Host and sequence outlive the answer, as what the
  // options borrow.
  static Result<std::unique_ptr<Answer>> begin(const SessionHost& host, Sequence& sequence,
                                               std::span<const TokenId> prompt, const GenerateOptions& options);
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Tokens to evaluate, at most as many as given; empty when the answer has ended. Logits of the last `outputs` of them
  // are wanted.
  struct Work {
    std::span<const TokenId> tokens;
    int64_t outputs = 0;
  };
  struct Most {
    int64_t tokens = 1;
    int64_t outputs = 1;
    bool drafts = false;  // guesses may be among the tokens
  };
  // Errors: out_of_memory when other sequences hold the cache.
  Result<Work> next(const Most& most);
  // The step that evaluated this work gave these rows of logits, from row `first` on. Errors: invalid_argument when no
  // token can follow; corrupt for a damaged model.
  Result<void> take(const Work& work, const OutputRows& out, int64_t first);

  Sequence& sequence() const { return sequence_; }
  const std::atomic<bool>* cancel_flag() const { return options_.cancel; }
  void end(FinishReason reason) { reason_ = reason; }
  bool ended() const { return reason_.has_value(); }
  // The prompt is read.
  bool writing() const { return length() > prompt_length_ || sequence_.length() >= prompt_length_; }
  // Of an answer that has ended.
  Generation finish() &&;

 private:
  Answer(const SessionHost& host, Sequence& sequence, std::span<const TokenId> prompt, const GenerateOptions& options,
         TokenChooser chooser);
  int64_t length() const { return static_cast<int64_t>(tokens_.size()) - drafts_; }
  int64_t pending() const { return length() - sequence_.length(); }
  bool ends_turn_later() const;
  void draft(int64_t most);
  void drop_drafts();
  // Whether the guess after the known tokens was chosen and the next row tells what follows it.
  Result<bool> choose(std::span<const float> logits, bool more_rows);
  void accept(TokenId token, std::span<const float> logits);
  bool full() const;

  using Time = std::chrono::steady_clock::time_point;
  const SessionHost& host_;
  Sequence& sequence_;
  GenerateOptions options_;
  TokenChooser chooser_;
  Generation out_;
  TextOutput text_;
  std::vector<TokenId> tokens_;  // prompt, answer, and guesses of what follows
  int64_t prompt_length_;
  int64_t drafts_ = 0;  // so many of tokens_, the last ones, are guesses
  std::unique_ptr<Drafter> drafter_;
  std::vector<TokenId> guesses_;
  std::optional<DraftGauge> gauge_;
  std::optional<FinishReason> reason_;
  Time start_, decode_start_, step_start_;
};

}  // namespace nanomind
