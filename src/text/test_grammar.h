// SPDX-License-Identifier: Apache-2.0
// A small vocabulary with every byte and an end token, prepared for grammars; for tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "text/bpe.h"
#include "text/grammar.h"
#include "text/test_data.h"

namespace nanomind {

class GrammarFixture : public testing::Test {
 protected:
  GrammarFixture() {
    Vocabulary vocabulary = read_vocabulary("small-qwen2");
    vocabulary.pre_tokenizer = "qwen2";
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (vocabulary.tokens[i] == "<|im_end|>") vocabulary.end = static_cast<TokenId>(i);
    }
    tokenizer_ = *make_bpe_tokenizer(std::move(vocabulary));
    vocabulary_.emplace(*GrammarVocabulary::create(*tokenizer_));
  }

  TokenId byte_token(char c) const {
    const auto ids = tokenizer_->encode({&c, 1}, ControlTokens::as_text, Beginning::omit);
    EXPECT_EQ(ids.size(), 1u);
    return ids[0];
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<GrammarVocabulary> vocabulary_;
};

}  // namespace nanomind
