// SPDX-License-Identifier: Apache-2.0
// A vocabulary as plain data, and what all kinds of tokenizer do with it alike: spellings, special tokens, ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/token_matcher.h"
#include "text/tokenizer.h"

namespace nanomind {

// Values as in `tokenizer.ggml.token_type`.
enum class TokenType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Vocabulary {
  std::vector<std::string> tokens{};  // spelling of token i
  std::vector<TokenType> types{};     // as many as tokens
  std::vector<float> scores{};        // SentencePiece: as many as tokens; otherwise empty
  std::vector<std::string> merges{};  // BPE: "left right", best first; otherwise empty
  std::string pre_tokenizer{};        // BPE: name of the rule that cuts text into words
  std::optional<TokenId> beginning{};
  std::optional<TokenId> end{};
  std::vector<TokenId> more_ends{};  // end of turn, of message
  std::optional<TokenId> unknown{};
  std::optional<TokenId> separator{};
  InfillTokens infill{};
  bool adds_beginning = false;
  bool adds_end = false;
  bool adds_separator = false;        // between two texts
  bool adds_space_prefix = false;     // SentencePiece
  bool removes_extra_spaces = false;  // SentencePiece unigram
  std::string charsmap{};             // SentencePiece unigram: the table of replacements, or empty
  bool lowercases = true;             // WordPiece
  bool strips_accents = true;         // WordPiece
};

// Some files call tokens user-defined that end an answer or mark its parts, so that what users type would become them.
// Makes control tokens of those; for reading files, before the tokenizer is made.
void correct_types(Vocabulary& vocabulary);

// Checks that lists are equally long and that ids are in range.
Result<void> validate(const Vocabulary& vocabulary);

// What tokens stand for whose spelling has U+2581 for a space and <0x00> to <0xFF> for bytes; control and unknown
// tokens for nothing. Errors: byte tokens that are spelled differently.
Result<std::vector<std::string>> decode_escaped(const Vocabulary& vocabulary);

// Spelling and id of every normal token; views into the vocabulary.
std::vector<std::pair<std::string_view, TokenId>> normal_pieces(const Vocabulary& vocabulary);

// Finds special tokens in the text and hands what lies between them to `encode_text`.
class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, ControlTokens control, Beginning beginning) const override;
  std::string_view bytes(TokenId id) const final;
  std::string_view piece(TokenId id) const final;
  int32_t vocabulary_size() const final { return static_cast<int32_t>(vocabulary_.tokens.size()); }
  std::optional<TokenId> beginning_token() const final { return vocabulary_.beginning; }
  std::optional<TokenId> end_token() const final { return vocabulary_.end; }
  bool adds_beginning() const final;
  std::optional<TokenId> closing_token() const final;
  std::optional<TokenId> pair_separator() const final;
  InfillTokens infill_tokens() const final { return vocabulary_.infill; }
  bool ends_generation(TokenId id) const final;

 protected:
  // Where a stretch of text stands.
  enum class Place { start, after_user_defined };  // `start`: of the text, or after a control token

  // `bytes[i]`: what token i stands for. The vocabulary is valid.
  VocabularyTokenizer(Vocabulary vocabulary, std::vector<std::string> bytes);

  virtual void encode_text(std::string_view text, Place place, std::vector<TokenId>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  bool in_range(TokenId id) const { return id >= 0 && id < vocabulary_size(); }

  Vocabulary vocabulary_;
  std::vector<std::string> bytes_;
  std::vector<bool> ends_;
  TokenMatcher user_defined_;  // what is always recognised
  TokenMatcher all_special_;   // and control tokens
};

}  // namespace nanomind
