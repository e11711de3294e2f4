// SPDX-License-Identifier: Apache-2.0
// What an engine keeps of one sequence of tokens: its blocks of the KV cache and, of recurrent models, its state. It
// knows which tokens are evaluated, and how to go back or to let old ones go; the steps themselves are its users'.
//
// Lengths and positions count all tokens that were read. With Overflow::slide those between the first `keep` and the
// recent ones leave the cache when it is full (attention sinks and a window, arXiv 2309.17453): the keys of the recent
// ones are turned back, so that the model sees what is left as one text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "runtime/kv_cache.h"
#include "runtime/session_options.h"
#include "runtime/sight.h"
#include "runtime/state_store.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace nanomind {

// What sessions share and the engine owns.
struct SessionHost {
  Executable* executable = nullptr;
  KvCache* cache = nullptr;
  StateStore* states = nullptr;
  Sight* sight = nullptr;  // null: sees no pictures
  const Tokenizer* tokenizer = nullptr;
  LazyGrammarVocabulary* grammar_vocabulary = nullptr;
  std::span<const uint8_t> model_id;  // the SHA-256 of the model's file
  int64_t vocabulary = 0;             // V
  int64_t capacity = 0;               // tokens that a session may hold
  int64_t max_tokens = 0;             // T of the largest step
  int64_t max_outputs = 0;            // R of the largest step
};

class Sequence {
 public:
  // Errors: out_of_memory when a recurrent model has no slot left for its state; unsupported or invalid_argument where
  // the model or the context cannot slide.
  static Result<std::unique_ptr<Sequence>> open(const SessionHost& host, const SessionOptions& options);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // All tokens that were evaluated.
  std::span<const TokenId> tokens() const { return tokens_; }
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  // How many of them slid out of the cache.
  int64_t dropped() const { return dropped_; }

  // Goes back to the longest beginning of `tokens` that is evaluated and after which a step may begin, the last token
  // left out, whose logits are wanted; returns its length.
  int64_t match(std::span<const TokenId> tokens);
  // Drops everything after `length` tokens and returns how many are left: fewer where a recurrent state was not kept
  // there, or where the rest has slid out.
  int64_t rewind(int64_t length);

  // Whether a prompt can be read: invalid_argument when it is empty, context_full when it is too long.
  Result<void> check_prompt(std::span<const TokenId> tokens) const;
  // How many rows may be added now: 1 to `wanted`, for which there are blocks then. Errors: context_full; out_of_memory
  // when other sequences hold the cache.
  Result<int64_t> make_room(int64_t wanted);
  // The next `count` rows, for Step; valid until this sequence changes.
  SequenceRows rows(int64_t count) const;
  // They were evaluated.
  void commit(std::span<const TokenId> tokens);
  // Their step failed: goes back to what is certain.
  void recover();

  // Of recurrent models: keeps the state, so that `rewind` can come back here.
  void take_snapshot();
  bool recurrent() const { return host_.states->needed(); }
  // Marks the state here, for one `rollback`; false when there is no room to keep it.
  bool mark();
  // Back to the mark.
  void rollback();

  // Tokens, cache and states as a file (sequence_file.cc), complete or not there, and for its owner alone. Errors:
  // no_space, io; invalid_argument where a picture was forgotten.
  Result<void> save(const std::filesystem::path& path) const;
  // Becomes what the file holds. The pictures in it must have been shown before (Sight::see); their tokens become those
  // that they have now. Errors, which leave the sequence as it was: not_found, corrupt, unsupported (another version),
  // invalid_argument (another model or kind of cache, pictures that were not shown), context_full, out_of_memory.
  Result<void> restore(const std::filesystem::path& path);

 private:
  Sequence(const SessionHost& host, const SessionOptions& options, int32_t state);
  int64_t cached() const { return length() - dropped_; }
  Result<void> slide();
  void truncate(int64_t length);

  const SessionHost& host_;
  SessionOptions options_;
  int64_t keep_;         // SessionOptions::keep in whole blocks
  int64_t dropped_ = 0;  // tokens after the first keep_ that are not in the cache any more
  std::vector<TokenId> tokens_;
  std::vector<int32_t> blocks_;
  int32_t state_;
  std::optional<int32_t> marked_state_;
  int64_t marked_length_ = 0;
  Snapshots snapshots_;
};

}  // namespace nanomind
