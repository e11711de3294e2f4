// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Implementations: byte-level BPE (bpe.cc), BPE over characters (character_bpe.cc),
// SentencePiece BPE (sentencepiece.cc) and unigram (unigram.cc), WordPiece (wordpiece.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"

namespace nanomind {

using TokenId = int32_t;

// Whether text such as "<|im_end|>" in the input becomes the control token (templates) or stays text (what users type).
enum class ControlTokens { as_text, recognise };
// Whether the beginning-of-sequence token is put first where the model's file asks for it.
enum class Beginning { add_if_model_does, omit };

// Control tokens around a gap to fill: text before it, text after it, the answer. Null where the model has none.
struct InfillTokens {
  std::optional<TokenId> prefix{};
  std::optional<TokenId> suffix{};
  std::optional<TokenId> middle{};
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` (any bytes: NUL and invalid UTF-8 are allowed). Linear time in the length of the text. Thread-safe.
  virtual std::vector<TokenId> encode(std::string_view text, ControlTokens control, Beginning beginning) const = 0;

  // The bytes that a token stands for; control tokens and unknown ids give none. Valid as long as the tokenizer.
  virtual std::string_view bytes(TokenId id) const = 0;

  // The token's own spelling in the vocabulary ("<|im_end|>"), also for control tokens; empty when out of range.
  virtual std::string_view piece(TokenId id) const = 0;

  virtual int32_t vocabulary_size() const = 0;
  virtual std::optional<TokenId> beginning_token() const = 0;
  virtual std::optional<TokenId> end_token() const = 0;
  virtual bool adds_beginning() const = 0;
  // What models that embed or compare texts were trained to see after a complete text: the end or separator token. Null
  // where the model's file does not ask for one.
  virtual std::optional<TokenId> closing_token() const = 0;
  // What stands between the first of two texts, closed as above, and the second. Null where the file asks for nothing.
  virtual std::optional<TokenId> pair_separator() const = 0;
  virtual InfillTokens infill_tokens() const = 0;
  // True for every token that ends an answer (end of sequence, of turn, of message).
  virtual bool ends_generation(TokenId id) const = 0;
};

// Whether ids that both know stand for the same.
bool same_tokens(const Tokenizer& a, const Tokenizer& b);

// Builds the tokenizer that the file describes. An unknown model or pre-tokenizer name is an error that names it and
// lists the known ones. The result does not refer to the file.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const GgufFile& file);

}  // namespace nanomind
