// SPDX-License-Identifier: Apache-2.0
#include "runtime/token_chooser.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/gbnf.h"

namespace nanomind {
namespace {

Result<Grammar> make_grammar(const Constraint& constraint, const GrammarVocabulary& vocabulary) {
  switch (constraint.kind) {
    case Constraint::Kind::json_schema: return Grammar::from_json_schema(constraint.source, vocabulary);
    case Constraint::Kind::regex: return Grammar::from_regex(constraint.source, vocabulary);
    case Constraint::Kind::lark: return Grammar::from_lark(constraint.source, vocabulary);
    case Constraint::Kind::gbnf: return Grammar::from_lark(TRY(lark_from_gbnf(constraint.source)), vocabulary);
  }
  return fail(ErrorCode::invalid_argument, "There is no such kind of constraint.");
}

bool has_bit(std::span<const uint32_t> mask, TokenId token) {
  return mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1;
}

}  // namespace

TokenChooser::TokenChooser(const GenerateOptions& options, int64_t logits, const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), sampler_(options.sampler, logits, &tokenizer), may_force_(options.logprobs < 0) {
  tokens_.reserve(16);
  if (!options.reasoning) return;
  close_ = options.reasoning->markers.close;
  budget_ = options.reasoning->budget;
}

Result<TokenChooser> TokenChooser::create(const GenerateOptions& options, int64_t logits, const Tokenizer& tokenizer,
                                          const GrammarVocabulary* vocabulary) {
  TokenChooser chooser(options, logits, tokenizer);
  if (!options.constraint) return chooser;
  CHECK(vocabulary != nullptr);
  chooser.grammar_.emplace(TRY(make_grammar(*options.constraint, *vocabulary)));
  chooser.mask_.resize(chooser.grammar_->mask_words());
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.ends_generation(id)) chooser.ends_.push_back(id);
  }
  // A grammar that allows nothing from the start is better refused before the prompt is read.
  TRY(chooser.grammar_->allowed(chooser.mask_));
  if (std::ranges::all_of(chooser.mask_, [](uint32_t word) { return word == 0; })) {
    return fail(ErrorCode::invalid_argument, "No text can meet the grammar or schema. Correct it.");
  }
  return chooser;
}

Result<void> TokenChooser::force() {
  const std::string text = TRY(grammar_->forced_text());
  if (text.empty()) return {};
  tokens_ = tokenizer_->encode(text, ControlTokens::as_text, Beginning::omit);
  std::string spelled;
  for (const TokenId token : tokens_) spelled += tokenizer_->bytes(token);
  // Some tokenizers cannot cut what does not begin a word. The last token stays to be chosen: more may belong to it.
  if (spelled != text) tokens_.clear();
  if (!tokens_.empty()) tokens_.pop_back();
  for (const TokenId token : tokens_) TRY(grammar_->accept(token));
  return {};
}

Result<void> TokenChooser::sample_allowed(std::span<const float> logits, std::span<const TokenId> recent) {
  TRY(grammar_->allowed(mask_));
  // The grammar knows one token that ends the text; the model may prefer another.
  if (std::ranges::any_of(ends_, [&](TokenId end) { return has_bit(mask_, end); })) {
    for (const TokenId end : ends_) mask_[static_cast<size_t>(end) / 32] |= uint32_t{1} << (end % 32);
  }
  const TokenId token = TRY(sampler_.sample(logits, recent, mask_));
  tokens_.push_back(token);
  if (tokenizer_->ends_generation(token)) {
    finished_ = true;
    return {};
  }
  return grammar_->accept(token);
}

bool TokenChooser::close_reasoning() {
  if (budget_ < 0) return false;
  if (budget_-- > 0) return false;
  // As models write it themselves.
  tokens_ = tokenizer_->encode("\n" + close_ + "\n\n", ControlTokens::recognise, Beginning::omit);
  return !tokens_.empty();
}

Result<TokenChooser::Next> TokenChooser::next(std::span<const float> logits, std::span<const TokenId> recent,
                                              Phase phase) {
  tokens_.clear();
  if (phase == Phase::reasoning && close_reasoning()) return Next{.tokens = tokens_, .forced = true};
  if (!grammar_ || phase == Phase::reasoning) {
    tokens_.push_back(TRY(sampler_.sample(logits, recent)));
    return Next{.tokens = tokens_};
  }
  if (may_force_) TRY(force());
  const bool forced = !tokens_.empty();
  if (!forced) TRY(sample_allowed(logits, recent));
  finished_ = finished_ || grammar_->finished();
  return Next{.tokens = tokens_, .forced = forced};
}

}  // namespace nanomind
