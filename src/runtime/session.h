// SPDX-License-Identifier: Apache-2.0
// A session of the local engine: a sequence, and what can be done with it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "runtime/sequence.h"

namespace nanomind {

class LocalSession final : public Session {
 public:
  // Errors: those of Sequence::open.
  static Result<std::unique_ptr<Session>> open(const SessionHost& host, const SessionOptions& options = {});

  Result<void> feed(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) override;
  std::span<const float> logits() const override { return logits_; }
  std::span<const TokenId> tokens() const override { return sequence_->tokens(); }
  int64_t capacity() const override { return host_.capacity; }
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options) override;
  Result<void> score(std::span<const TokenId> tokens, int64_t first,
                     const std::function<void(int64_t, std::span<const float>)>& on_row) override;
  Result<void> save(const std::filesystem::path& path) const override { return sequence_->save(path); }
  Result<void> restore(const std::filesystem::path& path) override { return sequence_->restore(path); }

  Sequence& sequence() { return *sequence_; }
  const SessionHost& host() const { return host_; }

 private:
  LocalSession(const SessionHost& host, std::unique_ptr<Sequence> sequence)
      : host_(host), sequence_(std::move(sequence)) {}
  // Evaluates the first of `tokens`, as many as one step takes; logits of the last `outputs` come when these are all.
  struct Evaluated {
    int64_t tokens = 0;
    OutputRows out;
  };
  Result<Evaluated> step(std::span<const TokenId> tokens, int64_t outputs, const std::atomic<bool>* cancel);
  // Of a prompt: what is not evaluated.
  Result<void> feed_rest(std::span<const TokenId> rest, const std::atomic<bool>* cancel);
  // Evaluates `tokens` in steps, keeping the logits of the last one.
  Result<void> extend(std::span<const TokenId> tokens, const std::atomic<bool>* cancel);

  const SessionHost& host_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<int32_t> wanted_;  // rows of a step
  PictureInputs pictures_;
  std::span<const float> logits_;
};

}  // namespace nanomind
