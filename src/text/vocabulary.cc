// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "text/spelling.h"

namespace nanomind {
namespace {

// Control tokens that end an answer, by the spelling that model families use; files often name only one of them. The
// last line ends what is filled into a gap.
constexpr auto kEndSpellings = std::to_array<std::string_view>({"<|im_end|>",
                                                                "<end_of_turn>",
                                                                "<|endoftext|>",
                                                                "<|eot_id|>",
                                                                "</s>",
                                                                "<|end|>",
                                                                "<|end_of_text|>",
                                                                "<|eom_id|>",
                                                                "<eos>",
                                                                "<EOT>",
                                                                "_<EOT>",
                                                                "[EOT]",
                                                                "[EOS]",
                                                                "[e~[",
                                                                "<|return|>",
                                                                "<|call|>",
                                                                "<|calls|>",
                                                                "<|flush|>",
                                                                "<turn|>",
                                                                "<|tool_response>",
                                                                "<|end_of_turn|>",
                                                                "<end_of_utterance>",
                                                                "<\uff5cend\u2581of\u2581sentence\uff5c>",
                                                                "<|fim_pad|>",
                                                                "<|fim_repo|>",
                                                                "<|repo_name|>",
                                                                "<|file_sep|>"});

bool is_end_spelling(std::string_view spelling) {
  return std::ranges::find(kEndSpellings, spelling) != kEndSpellings.end();
}

bool contains(const Vocabulary& vocabulary, std::string_view spelling) {
  return std::ranges::find(vocabulary.tokens, spelling) != vocabulary.tokens.end();
}

Result<void> check_id(const Vocabulary& vocabulary, TokenId id, std::string_view what) {
  if (id >= 0 && static_cast<size_t>(id) < vocabulary.tokens.size()) return {};
  return fail(ErrorCode::corrupt, fmt::format("The tokenizer's {} token {} is not in its vocabulary of {} tokens.",
                                              what, id, vocabulary.tokens.size()));
}

}  // namespace

Result<void> validate(const Vocabulary& vocabulary) {
  const size_t count = vocabulary.tokens.size();
  if (count == 0 || count > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return fail(ErrorCode::corrupt, fmt::format("The tokenizer has {} tokens, which cannot be.", count));
  }
  if (vocabulary.types.size() != count) {
    return fail(ErrorCode::corrupt,
                fmt::format("The tokenizer has {} tokens but {} token types.", count, vocabulary.types.size()));
  }
  if (vocabulary.beginning) TRY(check_id(vocabulary, *vocabulary.beginning, "beginning"));
  if (vocabulary.end) TRY(check_id(vocabulary, *vocabulary.end, "end"));
  if (vocabulary.unknown) TRY(check_id(vocabulary, *vocabulary.unknown, "unknown"));
  for (const TokenId id : vocabulary.more_ends) TRY(check_id(vocabulary, id, "end"));
  if (vocabulary.separator) TRY(check_id(vocabulary, *vocabulary.separator, "separator"));
  const auto& [prefix, suffix, middle] = vocabulary.infill;
  for (const auto& id : {prefix, suffix, middle}) {
    if (id) TRY(check_id(vocabulary, *id, "infill"));
  }
  return {};
}

void correct_types(Vocabulary& vocabulary) {
  const auto correct = [&](TokenId id) {
    if (id < 0 || static_cast<size_t>(id) >= vocabulary.types.size()) return;
    if (vocabulary.types[id] == TokenType::user_defined) vocabulary.types[id] = TokenType::control;
  };
  for (size_t i = 0; i < std::min(vocabulary.types.size(), vocabulary.tokens.size()); ++i) {
    // "</s>" is a tag of HTML to some models, and user-defined for that reason.
    const std::string_view spelling = vocabulary.tokens[i];
    if (is_end_spelling(spelling) && spelling != "</s>") correct(static_cast<TokenId>(i));
  }
  const auto& [prefix, suffix, middle] = vocabulary.infill;
  for (const auto& id : {vocabulary.beginning, vocabulary.end, vocabulary.separator, prefix, suffix, middle}) {
    if (id) correct(*id);
  }
  for (const TokenId id : vocabulary.more_ends) correct(id);
}

Result<std::vector<std::string>> decode_escaped(const Vocabulary& vocabulary) {
  std::vector<std::string> bytes(vocabulary.tokens.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string& spelling = vocabulary.tokens[i];
    const TokenType type = vocabulary.types[i];
    if (type == TokenType::normal || type == TokenType::user_defined) {
      bytes[i] = replace_all(spelling, kEscapedSpace, " ");
    } else if (type == TokenType::byte) {
      const auto byte = parse_byte_token(spelling);
      if (!byte) {
        return fail(ErrorCode::corrupt, fmt::format("The byte token \"{}\" is not of the form <0x00>.", spelling));
      }
      bytes[i] = static_cast<char>(*byte);
    }
  }
  return bytes;
}

std::vector<std::pair<std::string_view, TokenId>> normal_pieces(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, TokenId>> pieces;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] == TokenType::normal) pieces.emplace_back(vocabulary.tokens[i], static_cast<TokenId>(i));
  }
  return pieces;
}

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary, std::vector<std::string> bytes)
    : vocabulary_(std::move(vocabulary)), bytes_(std::move(bytes)), ends_(vocabulary_.tokens.size()) {
  CHECK(bytes_.size() == vocabulary_.tokens.size());
  // Where messages have several parts, <|end|> ends a part only.
  const bool end_ends_part = contains(vocabulary_, "<|return|>") || contains(vocabulary_, "<|flush|>");
  for (TokenId id = 0; id < vocabulary_size(); ++id) {
    const std::string& spelling = vocabulary_.tokens[id];
    const TokenType type = vocabulary_.types[id];
    if (type == TokenType::user_defined) user_defined_.add(spelling, id);
    if (type == TokenType::user_defined || type == TokenType::control) all_special_.add(spelling, id);
    const bool ends = type == TokenType::control && is_end_spelling(spelling);
    ends_[id] = ends && !(end_ends_part && spelling == "<|end|>");
  }
  if (vocabulary_.end) ends_[*vocabulary_.end] = true;
  for (const TokenId id : vocabulary_.more_ends) ends_[id] = true;
}

std::vector<TokenId> VocabularyTokenizer::encode(std::string_view text, ControlTokens control,
                                                 Beginning beginning) const {
  std::vector<TokenId> ids;
  if (beginning == Beginning::add_if_model_does && adds_beginning()) ids.push_back(*vocabulary_.beginning);
  const TokenMatcher& matcher = control == ControlTokens::recognise ? all_special_ : user_defined_;
  Place place = Place::start;
  size_t position = 0;
  while (position < text.size()) {
    const auto match = matcher.find(text, position);
    const size_t stop = match ? match->begin : text.size();
    if (stop > position) encode_text(text.substr(position, stop - position), place, ids);
    if (!match) break;
    ids.push_back(match->id);
    place = vocabulary_.types[match->id] == TokenType::control ? Place::start : Place::after_user_defined;
    position = match->end;
  }
  return ids;
}

std::string_view VocabularyTokenizer::bytes(TokenId id) const {
  return in_range(id) ? std::string_view(bytes_[id]) : std::string_view();
}

std::string_view VocabularyTokenizer::piece(TokenId id) const {
  return in_range(id) ? std::string_view(vocabulary_.tokens[id]) : std::string_view();
}

bool VocabularyTokenizer::adds_beginning() const { return vocabulary_.beginning && vocabulary_.adds_beginning; }

std::optional<TokenId> VocabularyTokenizer::closing_token() const {
  return vocabulary_.adds_end ? vocabulary_.end : std::nullopt;
}

std::optional<TokenId> VocabularyTokenizer::pair_separator() const {
  return vocabulary_.adds_separator ? vocabulary_.separator : std::nullopt;
}

bool VocabularyTokenizer::ends_generation(TokenId id) const { return in_range(id) && ends_[id]; }

}  // namespace nanomind
