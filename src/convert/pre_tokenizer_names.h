// SPDX-License-Identifier: Apache-2.0
// Recognises a published pre-tokenizer by what its tokenizer.json says: the name that GGUF files have for the rule. An
// expression that is not known is never taken for one that looks like it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nanomind {

// The steps of a pre-tokenizer, one line each: "split <expression>", "digits", "gpt2" (byte-level with GPT-2's
// expression) or "bytes" (byte-level without one). Errors: a kind of step, or an option of one, that has no such line.
Result<std::vector<std::string>> pre_tokenizer_steps(const Json& pre_tokenizer);

// tokenizer.ggml.pre for the member "pre_tokenizer" of a tokenizer.json. `takes_whole_words`: the model says that a
// word which is a token is that token ("ignore_merges").
Result<std::string> recognise_pre_tokenizer(const Json& pre_tokenizer, bool takes_whole_words);

}  // namespace nanomind
