// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace nanomind {
namespace {

// Control tokens that end an answer, by the spelling that model families use; files often name only one of them.
constexpr std::array<std::string_view, 14> kEndSpellings = {
    "<|im_end|>", "<end_of_turn>", "<|endoftext|>", "<|eot_id|>", "</s>",     "<|end|>", "<|end_of_text|>",
    "<|eom_id|>", "<eos>",         "<EOT>",         "<|return|>", "<|call|>", "<turn|>", "<|end_of_turn|>"};

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
  return {};
}

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary, std::vector<std::string> bytes)
    : vocabulary_(std::move(vocabulary)), bytes_(std::move(bytes)), ends_(vocabulary_.tokens.size()) {
  CHECK(bytes_.size() == vocabulary_.tokens.size());
  for (TokenId id = 0; id < vocabulary_size(); ++id) {
    const std::string& spelling = vocabulary_.tokens[id];
    const TokenType type = vocabulary_.types[id];
    if (type == TokenType::user_defined) user_defined_.add(spelling, id);
    if (type == TokenType::user_defined || type == TokenType::control) all_special_.add(spelling, id);
    if (type == TokenType::control && std::ranges::find(kEndSpellings, spelling) != kEndSpellings.end())
      ends_[id] = true;
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

bool VocabularyTokenizer::ends_generation(TokenId id) const { return in_range(id) && ends_[id]; }

}  // namespace nanomind
