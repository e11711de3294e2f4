// SPDX-License-Identifier: Apache-2.0
#include "text/grammar.h"

#include <nanomind_rust.h>

#include <utility>
#include <vector>

#include "text/rust_text.h"

namespace nanomind {

struct GrammarVocabulary::Impl {
  std::unique_ptr<NanomindVocabulary, decltype(&nanomind_vocabulary_free)> handle{nullptr, &nanomind_vocabulary_free};
  int32_t size = 0;
};

Result<GrammarVocabulary> GrammarVocabulary::create(const Tokenizer& tokenizer) {
  const auto end = tokenizer.end_token();
  if (!end) return fail(ErrorCode::unsupported, "The model has no end token, so its output cannot be constrained.");
  std::vector<NanomindVocabularyToken> tokens;
  tokens.reserve(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    const bool control = bytes.empty();
    tokens.push_back({lend(control ? tokenizer.piece(id) : bytes), control ? 1 : 0});
  }
  RustText error;
  auto impl = std::make_unique<Impl>();
  impl->size = tokenizer.vocabulary_size();
  impl->handle.reset(
      nanomind_vocabulary_create(tokens.data(), tokens.size(), static_cast<uint32_t>(*end), error.slot()));
  if (impl->handle == nullptr) return fail(ErrorCode::unsupported, error.take());
  return GrammarVocabulary(std::move(impl));
}

GrammarVocabulary::GrammarVocabulary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrammarVocabulary::GrammarVocabulary(GrammarVocabulary&&) noexcept = default;
GrammarVocabulary& GrammarVocabulary::operator=(GrammarVocabulary&&) noexcept = default;
GrammarVocabulary::~GrammarVocabulary() = default;

int32_t GrammarVocabulary::size() const { return impl_->size; }

Result<const GrammarVocabulary*> LazyGrammarVocabulary::get() {
  const std::scoped_lock lock(mutex_);
  if (!vocabulary_) vocabulary_.emplace(TRY(GrammarVocabulary::create(*tokenizer_)));
  return &*vocabulary_;
}

struct Grammar::Impl {
  std::unique_ptr<NanomindGrammar, decltype(&nanomind_grammar_free)> handle{nullptr, &nanomind_grammar_free};
};

Result<Grammar> Grammar::create(int kind, std::string_view source, const GrammarVocabulary& vocabulary) {
  RustText error;
  auto impl = std::make_unique<Impl>();
  impl->handle.reset(nanomind_grammar_create(vocabulary.impl_->handle.get(), kind, lend(source), error.slot()));
  if (impl->handle == nullptr) return fail(ErrorCode::invalid_argument, error.take());
  return Grammar(std::move(impl), (static_cast<size_t>(vocabulary.size()) + 31) / 32);
}

Result<Grammar> Grammar::from_json_schema(std::string_view schema, const GrammarVocabulary& vocabulary) {
  return create(NANOMIND_GRAMMAR_JSON_SCHEMA, schema, vocabulary);
}

Result<Grammar> Grammar::from_regex(std::string_view pattern, const GrammarVocabulary& vocabulary) {
  return create(NANOMIND_GRAMMAR_REGEX, pattern, vocabulary);
}

Result<Grammar> Grammar::from_lark(std::string_view grammar, const GrammarVocabulary& vocabulary) {
  return create(NANOMIND_GRAMMAR_LARK, grammar, vocabulary);
}

Grammar::Grammar(std::unique_ptr<Impl> impl, size_t mask_words) : impl_(std::move(impl)), mask_words_(mask_words) {}
Grammar::Grammar(Grammar&&) noexcept = default;
Grammar& Grammar::operator=(Grammar&&) noexcept = default;
Grammar::~Grammar() = default;

Result<void> Grammar::allowed(std::span<uint32_t> mask) {
  CHECK(mask.size() == mask_words_);
  RustText error;
  if (nanomind_grammar_mask(impl_->handle.get(), mask.data(), mask.size(), error.slot()) != 0) {
    return fail(ErrorCode::invalid_argument, error.take());
  }
  return {};
}

Result<std::string> Grammar::forced_text() {
  RustText text;
  const bool failed = nanomind_grammar_forced(impl_->handle.get(), text.slot()) != 0;
  if (failed) return fail(ErrorCode::invalid_argument, text.take());
  return text.take();
}

Result<void> Grammar::accept(TokenId token) {
  RustText error;
  if (token < 0 || nanomind_grammar_accept(impl_->handle.get(), static_cast<uint32_t>(token), error.slot()) != 0) {
    return fail(ErrorCode::invalid_argument, token < 0 ? "There is no token with a negative id." : error.take());
  }
  return {};
}

bool Grammar::finished() const { return nanomind_grammar_state(impl_->handle.get()) == 1; }

}  // namespace nanomind
