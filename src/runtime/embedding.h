// SPDX-License-Identifier: Apache-2.0
// One vector for a text: the hidden states of its tokens, pooled.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "models/registry.h"
#include "runtime/session.h"

namespace nanomind {

// What of the model the vector needs to know.
struct EmbeddingPlan {
  Pooling pooling = Pooling::mean;
  bool whole_sequences = false;  // the text must fit one step
};

// The pooled result rows of `tokens` (not empty) in a sequence of its own. context_full when they do not fit,
// out_of_memory when sessions hold the cache.
Result<std::vector<float>> pool_text(const SessionHost& host, const EmbeddingPlan& plan,
                                     std::span<const TokenId> tokens);

// A text as models that embed are trained to see it: whole, with the tokens that their file wants at its ends.
std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::string_view text);

// Query and document as a model that ranks wants them: by the file's template with {query} and {document}, or, where it
// has none, one after the other with the model's separators.
std::vector<TokenId> pair_tokens(const Tokenizer& tokenizer, std::string_view rank_template, std::string_view query,
                                 std::string_view document);

// 0 to 1: the sigmoid of a single result, or the share of the first of two (yes and no) in their softmax.
float score_of(std::span<const float> result);

// x / |x|, in place; zeros stay.
void normalise(std::span<float> x);

}  // namespace nanomind
