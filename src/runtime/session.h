// SPDX-License-Identifier: Apache-2.0
// A session of the local engine: its tokens, its cache blocks, and the loop that samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "runtime/engine.h"
#include "runtime/kv_cache.h"
#include "runtime/state_store.h"
#include "runtime/text_output.h"
#include "runtime/token_chooser.h"
#include "text/grammar.h"

namespace nanomind {

// What sessions share and the engine owns.
struct SessionHost {
  Executable* executable = nullptr;
  KvCache* cache = nullptr;
  StateStore* states = nullptr;
  const Tokenizer* tokenizer = nullptr;
  LazyGrammarVocabulary* grammar_vocabulary = nullptr;
  int64_t vocabulary = 0;   // V
  int64_t capacity = 0;     // tokens that a session may hold
  int64_t max_tokens = 0;   // T of the largest step
  int64_t max_outputs = 0;  // R of the largest step
};

class LocalSession final : public Session {
 public:
  // out_of_memory when a recurrent model has no slot left for its state.
  static Result<std::unique_ptr<Session>> open(const SessionHost& host);
  ~LocalSession() override;

  Result<void> feed(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) override;
  std::span<const float> logits() const override { return logits_; }
  std::span<const TokenId> tokens() const override { return tokens_; }
  int64_t capacity() const override { return host_.capacity; }
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options) override;
  Result<void> score(std::span<const TokenId> tokens, int64_t first,
                     const std::function<void(int64_t, std::span<const float>)>& on_row) override;

 private:
  LocalSession(const SessionHost& host, int32_t state);
  // Evaluates `tokens` after what is held; `outputs` are rows of this step.
  Result<OutputRows> step(std::span<const TokenId> tokens, std::span<const int32_t> outputs);
  // Evaluates `tokens` in steps, keeping the logits of the last one.
  Result<void> extend(std::span<const TokenId> tokens, const std::atomic<bool>* cancel);
  Result<void> sample_loop(const GenerateOptions& options, TokenChooser& chooser, Generation& out);
  std::optional<FinishReason> take(TokenId token, const GenerateOptions& options, TextOutput& text,
                                   Generation& out) const;
  // Drops everything after the first `length` tokens; of a recurrent model, after those that a snapshot of its state
  // covers. Returns how many are left.
  int64_t rewind(int64_t length);
  void truncate(int64_t length);

  SessionHost host_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> blocks_;
  int32_t state_;
  Snapshots snapshots_;
  std::span<const float> logits_;
  int64_t reused_ = 0;  // tokens that the last feed found evaluated
};

}  // namespace nanomind
