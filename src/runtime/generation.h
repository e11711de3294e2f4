// SPDX-License-Identifier: Apache-2.0
// What a session is asked to write, and what it wrote.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/logprobs.h"
#include "runtime/sampler_options.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"

namespace nanomind {

// Why an answer ended.
enum class FinishReason { end_of_text, stop_string, length, context_full, cancelled };

// The form that an answer must have.
struct Constraint {
  enum class Kind { json_schema, regex, lark, gbnf } kind = Kind::json_schema;
  std::string source;
};

// How an answer marks what it thinks before it answers.
struct ReasoningOptions {
  ReasoningMarkers markers;
  ReasoningSplitter::Start start = ReasoningSplitter::Start::answer;  // `reasoning`: the prompt has opened it
  int64_t budget = -1;  // tokens of reasoning, after which the closing marker is written; -1: no bound
};

class Session;

// Guesses of what comes next, which are checked several at once: the text is the same, and comes sooner where guesses
// are mostly right. They are left off while they do not pay.
struct SpeculationOptions {
  enum class Kind : uint8_t {
    none,
    lookup,  // what stood in the text where the last tokens stood before
    model,   // what a small model with the same tokens says
  } kind = Kind::none;
  Session* draft = nullptr;  // of the small model, for this answer alone; borrowed
  int64_t most = 7;  // guesses at a time, 1 to kMostDrafts; a device reads 8 rows in not much more than one's time
};
inline constexpr int64_t kMostDrafts = 15;

struct GenerateOptions {
  SamplerOptions sampler;
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  // `ignore` goes on after tokens that end an answer, except where a constraint allows nothing else.
  enum class EndTokens { stop, ignore } end_tokens = EndTokens::stop;
  // The answer ends before the first of these texts; nothing of it is given out. They may stand in reasoning.
  std::vector<std::string> stop;
  // So many tokens of the prompt will also begin the prompt of the next turn, whatever becomes of the answer: recurrent
  // models keep their state there. 0: not known.
  int64_t turn_end = 0;
  std::optional<Constraint> constraint;       // of the answer, not of reasoning
  std::optional<ReasoningOptions> reasoning;  // absent: reasoning is part of the answer's text
  std::vector<std::string> visible;           // control tokens that are given out as text, by their spelling
  int logprobs = -1;  // -1: none; else also so many of the likeliest tokens at each place, at most kMostLogprobs
  SpeculationOptions speculation;
  const std::atomic<bool>* cancel = nullptr;  // set from any thread or a signal handler; ends the step that runs, too
  // Called with each piece of complete UTF-8 text; may be empty.
  std::function<void(std::string_view)> on_text;
  std::function<void(std::string_view)> on_reasoning;  // the same for reasoning
};

struct Generation {
  std::string text;
  std::string reasoning;
  std::vector<TokenId> tokens;       // sampled and forced ones, the end token included
  std::vector<LogprobRow> logprobs;  // one per token, where asked for
  FinishReason reason = FinishReason::end_of_text;
  int64_t prompt_tokens = 0;     // evaluated in this call
  int64_t cached_tokens = 0;     // of the prompt, found in the session
  int64_t forced_tokens = 0;     // of `tokens`: the constraint or the budget left no choice, so they were not sampled
  int64_t reasoning_tokens = 0;  // of `tokens`
  int64_t drafted_tokens = 0;    // guessed,
  int64_t accepted_tokens = 0;   // and of these part of `tokens`
  int64_t dropped_tokens = 0;    // of prompt and answer, that had slid out of the context in the end
  double prompt_ms = 0;
  double decode_ms = 0;
};

// Says which option is out of range and what the range is.
Result<void> check(const GenerateOptions& options);

}  // namespace nanomind
