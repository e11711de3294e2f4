// SPDX-License-Identifier: Apache-2.0
// Constrained output: which tokens may come next so that the answer matches a JSON schema, a regular expression or a
// Lark grammar. Between two JSON tokens about 20 characters of white space are allowed, and none after the value;
// a number has about 24 digits in a row at most.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace nanomind {

// A vocabulary prepared for matching; made once per model, it takes a moment. Thread-safe.
class GrammarVocabulary {
 public:
  // The tokenizer need not outlive the result. It must have an end token.
  static Result<GrammarVocabulary> create(const Tokenizer& tokenizer);
  GrammarVocabulary(GrammarVocabulary&&) noexcept;
  GrammarVocabulary& operator=(GrammarVocabulary&&) noexcept;
  ~GrammarVocabulary();

  int32_t size() const;

 private:
  friend class Grammar;
  struct Impl;
  explicit GrammarVocabulary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A vocabulary that is prepared when it is first needed. Thread-safe.
class LazyGrammarVocabulary {
 public:
  // `tokenizer` outlives this.
  explicit LazyGrammarVocabulary(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // Valid as long as this. A failure is not remembered.
  Result<const GrammarVocabulary*> get();

 private:
  const Tokenizer* tokenizer_;
  std::mutex mutex_;
  std::optional<GrammarVocabulary> vocabulary_;
};

// The state of one answer. One thread at a time. Size, nesting and work are bounded: too much is an error.
class Grammar {
 public:
  static Result<Grammar> from_json_schema(std::string_view schema, const GrammarVocabulary& vocabulary);
  static Result<Grammar> from_regex(std::string_view pattern, const GrammarVocabulary& vocabulary);
  static Result<Grammar> from_lark(std::string_view grammar, const GrammarVocabulary& vocabulary);
  Grammar(Grammar&&) noexcept;
  Grammar& operator=(Grammar&&) noexcept;
  ~Grammar();

  // Words that a mask takes: one bit per token.
  size_t mask_words() const { return mask_words_; }

  // Sets bit i % 32 of mask[i / 32] for every token i that may come next, clears the others. When the text is complete,
  // the end token is among them. mask.size() == mask_words().
  Result<void> allowed(std::span<uint32_t> mask);

  // The text that must come next; empty when the grammar leaves a choice, or is complete.
  Result<std::string> forced_text();

  // Advances by the token that was chosen. A token that is not allowed is an error, after which every call fails.
  Result<void> accept(TokenId token);

  // True when nothing but the end token can follow.
  bool finished() const;

 private:
  struct Impl;
  static Result<Grammar> create(int kind, std::string_view source, const GrammarVocabulary& vocabulary);
  Grammar(std::unique_ptr<Impl> impl, size_t mask_words);

  std::unique_ptr<Impl> impl_;
  size_t mask_words_;
};

}  // namespace nanomind
