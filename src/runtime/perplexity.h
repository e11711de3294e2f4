// SPDX-License-Identifier: Apache-2.0
// Perplexity as llama-perplexity defines it: chunks of `context` tokens of the text (each beginning with the beginning
// token where the model adds one), scored on the second half of each chunk, exp of the mean negative log-likelihood.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/engine.h"

namespace nanomind {

struct PerplexityOptions {
  int64_t context = 512;  // tokens per chunk
  int64_t chunks = -1;    // -1: all whole chunks
  std::function<void(int64_t done, int64_t total, double perplexity)> on_chunk;
  // Logits [V] of each scored position, in order; may be empty. After an error the work ends with its chunk.
  std::function<Result<void>(std::span<const float>)> on_logits;
};

struct PerplexityResult {
  double perplexity = 0;
  std::vector<float> log_probabilities;  // natural log, one per scored token
  int64_t chunks = 0;
};

// The tokens of each chunk that `perplexity` measures. invalid_argument for a text of less than one chunk.
Result<std::vector<std::vector<TokenId>>> perplexity_chunks(const Tokenizer& tokenizer, std::string_view text,
                                                            const PerplexityOptions& options);

// Positions context / 2 to context - 2 of a chunk, each of which predicts the next token.
inline int64_t scored_positions(int64_t context) { return context - 1 - context / 2; }

// Errors: those of perplexity_chunks, of the session, and of on_logits; invalid_argument for chunks that do not fit the
// engine.
Result<PerplexityResult> perplexity(Engine& engine, std::string_view text, const PerplexityOptions& options);

}  // namespace nanomind
