// SPDX-License-Identifier: Apache-2.0
#include "runtime/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "runtime/logprobs.h"

namespace nanomind {
Result<std::unique_ptr<Answer>> Answer::begin(const SessionHost& host, Sequence& sequence,
                                              std::span<const TokenId> prompt, const GenerateOptions& options) {
  TRY(check(options));
  TRY(sequence.check_prompt(prompt));
  const GrammarVocabulary* vocabulary = options.constraint ? TRY(host.grammar_vocabulary->get()) : nullptr;
  auto chooser = TRY(TokenChooser::create(options, host.vocabulary, *host.tokenizer, vocabulary));
  return std::unique_ptr<Answer>(new Answer(host, sequence, prompt, options, std::move(chooser)));
}

Answer::Answer(const SessionHost& host, Sequence& sequence, std::span<const TokenId> prompt,
               const GenerateOptions& options, TokenChooser chooser)
    : host_(host),
      sequence_(sequence),
      options_(options),
      chooser_(std::move(chooser)),
      text_(options_, *host.tokenizer, out_),
      prompt_length_(static_cast<int64_t>(prompt.size())),
      drafter_(make_drafter(options.speculation)),
      start_(std::chrono::steady_clock::now()),
      decode_start_(start_) {
  tokens_.reserve(static_cast<size_t>(std::max(host.capacity, prompt_length_) + kMostDrafts));
  tokens_.assign(prompt.begin(), prompt.end());
  if (drafter_) gauge_.emplace(options.speculation.most);
  out_.cached_tokens = sequence.match(prompt);
  out_.prompt_tokens = prompt_length_ - out_.cached_tokens;
}

bool Answer::full() const {
  return options_.max_tokens >= 0 && static_cast<int64_t>(out_.tokens.size()) >= options_.max_tokens;
}

Result<Answer::Work> Answer::next(const Most& most) {
  step_start_ = std::chrono::steady_clock::now();
  if (!ended() && options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed))
    end(FinishReason::cancelled);
  if (ended()) return Work{};
  int64_t wanted = pending();
  // A recurrent state is kept before the last token of a prompt, where the same question will begin, and where the next
  // turn will.
  if (sequence_.recurrent() && sequence_.length() < prompt_length_ - 1)
    wanted = (ends_turn_later() ? options_.turn_end : prompt_length_ - 1) - sequence_.length();
  else if (most.drafts && pending() == 1)
    draft(std::min({most.tokens, most.outputs}) - 1);
  const Result<int64_t> room = sequence_.make_room(std::min(most.tokens, wanted + drafts_));
  if (!room) {
    drop_drafts();
    if (room.error().code != ErrorCode::context_full || !writing()) return std::unexpected(room.error());
    end(FinishReason::context_full);
    return Work{};
  }
  if (const int64_t over = wanted + drafts_ - *room; drafts_ > 0 && over > 0) {
    tokens_.resize(tokens_.size() - static_cast<size_t>(over));
    drafts_ -= over;
  }
  const auto rest = std::span<const TokenId>(tokens_).subspan(static_cast<size_t>(sequence_.length()));
  const int64_t count = host_.sight == nullptr ? *room : host_.sight->fit(rest, *room);
  if (count == 0 && most.tokens == host_.max_tokens)
    return fail(ErrorCode::out_of_memory, "The cache has too little room for a picture, which is read at once.");
  return Work{.tokens = rest.first(static_cast<size_t>(count)), .outputs = count < pending() ? 0 : 1 + drafts_};
}

bool Answer::ends_turn_later() const {
  return options_.turn_end > sequence_.length() && options_.turn_end < prompt_length_ - 1;
}

// Guesses follow a chosen token, so that each costs one row.
void Answer::draft(int64_t most) {
  if (!drafter_ || !writing()) return;
  if (options_.max_tokens >= 0)
    most = std::min(most, options_.max_tokens - static_cast<int64_t>(out_.tokens.size()) - 1);
  most = std::min(most, gauge_->length());
  if (most < 1) return;
  guesses_.clear();
  drafter_->draft(tokens_, most, guesses_);
  // A small model may know more tokens, and an earlier place may be followed by a picture.
  const auto strange = [&](TokenId token) { return token < 0 || token >= host_.vocabulary; };
  guesses_.erase(std::ranges::find_if(guesses_, strange), guesses_.end());
  if (guesses_.empty() || !sequence_.mark()) return;
  tokens_.insert(tokens_.end(), guesses_.begin(), guesses_.end());
  drafts_ = static_cast<int64_t>(guesses_.size());
}

void Answer::drop_drafts() {
  tokens_.resize(static_cast<size_t>(length()));
  drafts_ = 0;
}

Result<void> Answer::take(const Work& work, const OutputRows& out, int64_t first) {
  const bool was_writing = writing();
  sequence_.commit(work.tokens);
  if (work.outputs == 0) {
    const bool turn_ends = sequence_.length() == options_.turn_end, ends = sequence_.length() == prompt_length_ - 1;
    if (sequence_.recurrent() && (turn_ends || ends)) sequence_.take_snapshot();
    return {};
  }
  if (!was_writing) {
    out_.prompt_ms = milliseconds_since(start_);
    decode_start_ = std::chrono::steady_clock::now();
    if (full()) end(FinishReason::length);
  }
  const int64_t drafted = drafts_;
  int64_t row = 0;
  while (!ended() && TRY(choose(out.row(first + row), row + 1 < work.outputs))) ++row;
  out_.drafted_tokens += drafted;
  out_.accepted_tokens += row;
  if (gauge_ && was_writing) gauge_->record(drafted, row, milliseconds_since(step_start_));
  if (row == drafted) return {};
  // Of a state the right guesses cannot be kept either: they are read again with the next token.
  if (sequence_.recurrent()) {
    sequence_.rollback();
  } else {
    sequence_.rewind(sequence_.length() - (drafted - row));
  }
  return {};
}

Result<bool> Answer::choose(std::span<const float> logits, bool more_rows) {
  const auto known = std::span(tokens_).first(static_cast<size_t>(length()));
  const auto phase = text_.reasoning() ? TokenChooser::Phase::reasoning : TokenChooser::Phase::answer;
  const auto next = TRY(chooser_.next(logits, known, phase));
  const bool right = more_rows && next.tokens.size() == 1 && next.tokens[0] == tokens_[known.size()];
  if (right) {
    --drafts_;
  } else {
    drop_drafts();
  }
  for (const TokenId token : next.tokens) {
    if (ended()) break;
    if (!right) tokens_.push_back(token);
    accept(token, logits);
    if (next.forced) ++out_.forced_tokens;
    if (!ended() && full()) end(FinishReason::length);
  }
  if (!ended() && chooser_.finished()) end(FinishReason::end_of_text);
  if (ended()) drop_drafts();
  return right && !ended();
}

void Answer::accept(TokenId token, std::span<const float> logits) {
  out_.tokens.push_back(token);
  if (text_.reasoning()) ++out_.reasoning_tokens;
  if (options_.logprobs >= 0) out_.logprobs.push_back(logprobs_of(logits, token, options_.logprobs));
  if (options_.end_tokens == GenerateOptions::EndTokens::stop && host_.tokenizer->ends_generation(token)) {
    end(FinishReason::end_of_text);
    return;
  }
  text_.push(token);
  if (text_.stopped()) end(FinishReason::stop_string);
}

Generation Answer::finish() && {
  const bool began = !out_.tokens.empty() || writing();
  if (began)
    out_.decode_ms = milliseconds_since(decode_start_);
  else
    out_.prompt_ms = milliseconds_since(start_);
  text_.finish(*reason_ == FinishReason::end_of_text ? TextOutput::Ending::complete : TextOutput::Ending::cut);
  out_.dropped_tokens = sequence_.dropped();
  out_.reason = text_.stopped() ? FinishReason::stop_string : *reason_;
  return std::move(out_);
}

}  // namespace nanomind
