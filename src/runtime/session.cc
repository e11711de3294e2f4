// SPDX-License-Identifier: Apache-2.0
#include "runtime/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/text_output.h"
#include "runtime/token_chooser.h"

namespace nanomind {
namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

bool cancelled(const std::atomic<bool>* flag) { return flag != nullptr && flag->load(std::memory_order_relaxed); }

}  // namespace

Result<std::unique_ptr<Session>> LocalSession::open(const SessionHost& host) {
  const std::optional<int32_t> state = host.states->acquire();
  if (!state) return fail(ErrorCode::out_of_memory, "All states of this engine are used by open sessions; end one.");
  return std::unique_ptr<Session>(new LocalSession(host, *state));
}

LocalSession::LocalSession(const SessionHost& host, int32_t state)
    : host_(host), state_(state), snapshots_(*host.states) {
  tokens_.reserve(static_cast<size_t>(host.capacity));
  blocks_.reserve(static_cast<size_t>(host.capacity / kKvBlockTokens + 1));
}

LocalSession::~LocalSession() {
  truncate(0);
  host_.states->release(state_);
}

int64_t LocalSession::rewind(int64_t length) {
  if (host_.states->needed() && length < static_cast<int64_t>(tokens_.size()))
    length = snapshots_.restore(state_, length);
  truncate(length);
  return length;
}

void LocalSession::truncate(int64_t length) {
  tokens_.resize(static_cast<size_t>(length));
  const auto needed = static_cast<size_t>((length + kKvBlockTokens - 1) / kKvBlockTokens);
  while (blocks_.size() > needed) {
    host_.cache->release(blocks_.back());
    blocks_.pop_back();
  }
}

Result<OutputRows> LocalSession::step(std::span<const TokenId> tokens, std::span<const int32_t> outputs) {
  const auto past = static_cast<int64_t>(tokens_.size()), rows = static_cast<int64_t>(tokens.size());
  while (static_cast<int64_t>(blocks_.size()) * kKvBlockTokens < past + rows)
    blocks_.push_back(TRY(host_.cache->acquire()));
  const SequenceRows sequence{.blocks = blocks_, .past = past, .rows = rows, .state = state_};
  const OutputRows out = TRY(host_.executable->run({.tokens = tokens,
                                                    .sequences = {&sequence, 1},
                                                    .outputs = outputs,
                                                    .kv_cache = &host_.cache->buffer(),
                                                    .states = host_.states->buffer()}));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return out;
}

Result<void> LocalSession::extend(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) {
  while (!tokens.empty()) {
    if (cancelled(cancel)) return fail(ErrorCode::cancelled, "Stopped.");
    const size_t n = std::min(tokens.size(), static_cast<size_t>(host_.max_tokens));
    const auto last = static_cast<int32_t>(n - 1);
    const bool final = n == tokens.size();
    const OutputRows out = TRY(step(tokens.first(n), final ? std::span(&last, 1) : std::span<const int32_t>()));
    if (final) logits_ = out.row(0);
    tokens = tokens.subspan(n);
  }
  return {};
}

Result<void> LocalSession::feed(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) {
  if (tokens.empty())
    return fail(ErrorCode::invalid_argument, "There is nothing to evaluate: the prompt has no tokens.");
  if (static_cast<int64_t>(tokens.size()) > host_.capacity) {
    return fail(ErrorCode::context_full,
                fmt::format("The prompt has {} tokens, but the context holds {}; shorten it or choose a larger --ctx.",
                            tokens.size(), host_.capacity));
  }
  const auto [mine, theirs] = std::ranges::mismatch(tokens_, tokens);
  // The last token is always evaluated: its logits are what the caller wants.
  const auto common = std::min<int64_t>(mine - tokens_.begin(), static_cast<int64_t>(tokens.size()) - 1);
  reused_ = rewind(common);
  std::span<const TokenId> rest = tokens.subspan(static_cast<size_t>(reused_));
  if (host_.states->needed() && rest.size() > 1) {
    // Where another turn, or the same question again, will begin.
    TRY(extend(rest.first(rest.size() - 1), cancel));
    snapshots_.take(state_, static_cast<int64_t>(tokens_.size()));
    rest = rest.last(1);
  }
  return extend(rest, cancel);
}

Result<Generation> LocalSession::generate(std::span<const TokenId> prompt, const GenerateOptions& options) {
  TRY(check(options));
  // A constraint that cannot be met is known before the prompt is read.
  const GrammarVocabulary* vocabulary = options.constraint ? TRY(host_.grammar_vocabulary->get()) : nullptr;
  auto chooser = TRY(TokenChooser::create(options, host_.vocabulary, *host_.tokenizer, vocabulary));
  Generation out;
  const auto start = std::chrono::steady_clock::now();
  const Result<void> fed = feed(prompt, options.cancel);
  if (!fed && fed.error().code != ErrorCode::cancelled) return std::unexpected(fed.error());
  out.cached_tokens = reused_;
  out.prompt_tokens = static_cast<int64_t>(prompt.size()) - reused_;
  out.prompt_ms = ms_since(start);
  if (!fed) {
    out.reason = FinishReason::cancelled;
    return out;
  }
  const auto decode_start = std::chrono::steady_clock::now();
  TRY(sample_loop(options, chooser, out));
  out.decode_ms = ms_since(decode_start);
  return out;
}

Result<void> LocalSession::sample_loop(const GenerateOptions& options, TokenChooser& chooser, Generation& out) {
  TextOutput text(options, *host_.tokenizer, out);
  size_t evaluated = 0;  // of out.tokens
  std::optional<FinishReason> reason;
  const auto full = [&] {
    return options.max_tokens >= 0 && static_cast<int64_t>(out.tokens.size()) >= options.max_tokens;
  };
  // Tokens are evaluated only when another is to follow.
  while (!reason && !full()) {
    const std::span<const TokenId> chosen = std::span(out.tokens).subspan(evaluated);
    if (static_cast<int64_t>(tokens_.size() + chosen.size()) > host_.capacity) {
      reason = FinishReason::context_full;
      break;
    }
    if (!chosen.empty()) TRY(extend(chosen, nullptr));
    evaluated = out.tokens.size();
    if (cancelled(options.cancel)) {
      reason = FinishReason::cancelled;
      break;
    }
    const auto phase = text.reasoning() ? TokenChooser::Phase::reasoning : TokenChooser::Phase::answer;
    const auto next = TRY(chooser.next(logits_, tokens_, phase));
    for (const TokenId token : next.tokens) {
      if (reason || full()) break;
      reason = take(token, options, text, out);
      if (next.forced) ++out.forced_tokens;
    }
    if (!reason && chooser.finished()) reason = FinishReason::end_of_text;
  }
  text.finish();
  out.reason = text.stopped() ? FinishReason::stop_string : reason.value_or(FinishReason::length);
  return {};
}

// Adds one token to the answer; the reason when it is the last.
std::optional<FinishReason> LocalSession::take(TokenId token, const GenerateOptions& options, TextOutput& text,
                                               Generation& out) const {
  out.tokens.push_back(token);
  if (text.reasoning()) ++out.reasoning_tokens;
  if (options.logprobs >= 0) out.logprobs.push_back(logprobs_of(logits_, token, options.logprobs));
  if (options.end_tokens == GenerateOptions::EndTokens::stop && host_.tokenizer->ends_generation(token)) {
    return FinishReason::end_of_text;
  }
  text.push(token);
  return text.stopped() ? std::optional(FinishReason::stop_string) : std::nullopt;
}

Result<void> LocalSession::score(std::span<const TokenId> tokens, int64_t first,
                                 const std::function<void(int64_t, std::span<const float>)>& on_row) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (first < 0 || first > count)
    return fail(ErrorCode::invalid_argument, "The first position to score is outside the text.");
  if (count > host_.capacity) return fail(ErrorCode::context_full, "The text to score does not fit the context.");
  rewind(0);
  TRY(extend(tokens.first(static_cast<size_t>(first)), nullptr));
  std::vector<int32_t> rows;
  for (int64_t done = first; done < count;) {
    const int64_t n = std::min({count - done, host_.max_outputs, host_.max_tokens});
    rows.clear();
    for (int64_t i = 0; i < n; ++i) rows.push_back(static_cast<int32_t>(i));
    const OutputRows out = TRY(step(tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(n)), rows));
    for (int64_t i = 0; i < n; ++i) on_row(done + i, out.row(i));
    done += n;
  }
  return {};
}

}  // namespace nanomind
