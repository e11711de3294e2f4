// SPDX-License-Identifier: Apache-2.0
// Reading of the GGUF keys; what the tokenizers do with them is tested beside each.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kTokens = {"a", "b", "ab", "<|im_end|>", "<|endoftext|>", "<x>"};
const std::vector<int32_t> kTypes = {1, 1, 1, 3, 3, 4};

GgufTestWriter bpe() {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "qwen2").add("tokenizer.ggml.tokens", kTokens);
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  return writer;
}

Result<std::unique_ptr<Tokenizer>> make(const GgufTestWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  return make_tokenizer(TRY(GgufFile::parse(bytes)));
}

std::string message(const GgufTestWriter& writer) {
  const auto tokenizer = make(writer);
  return tokenizer ? "no error" : tokenizer.error().message;
}

TEST(MakeTokenizer, ReadsByteLevelBpe) {
  const auto tokenizer = *make(bpe()
                                   .add("tokenizer.ggml.token_type", kTypes)
                                   .add("tokenizer.ggml.eos_token_id", uint32_t{3})
                                   .add("tokenizer.ggml.bos_token_id", uint32_t{4}));
  EXPECT_THAT(tokenizer->encode("ab<x>b", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(2, 5, 1));
  EXPECT_EQ(tokenizer->vocabulary_size(), 6);
  EXPECT_EQ(tokenizer->end_token(), 3);
  EXPECT_EQ(tokenizer->beginning_token(), 4);
  EXPECT_FALSE(tokenizer->adds_beginning());
  EXPECT_TRUE(tokenizer->ends_generation(3));
  EXPECT_TRUE(tokenizer->ends_generation(4));
  EXPECT_FALSE(tokenizer->ends_generation(0));
}

TEST(MakeTokenizer, TypesMayBeMissing) {
  const auto tokenizer = *make(bpe());
  EXPECT_THAT(tokenizer->encode("ab", ControlTokens::recognise, Beginning::omit), ElementsAre(2));
  EXPECT_EQ(tokenizer->end_token(), std::nullopt);
}

TEST(MakeTokenizer, ReadsSentencePiece) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", kTokens);
  writer.add("tokenizer.ggml.scores", std::vector<float>{-3, -3, -1, 0, 0, 0}).add("tokenizer.ggml.token_type", kTypes);
  writer.add("tokenizer.ggml.bos_token_id", uint32_t{4}).add("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = *make(writer);
  EXPECT_THAT(tokenizer->encode("ab<x>b", ControlTokens::as_text, Beginning::add_if_model_does),
              ElementsAre(4, 2, 5, 1));
  EXPECT_TRUE(tokenizer->adds_beginning());
}

TEST(MakeTokenizer, EndOfTurnEndsTheAnswerToo) {
  const auto tokenizer =
      *make(bpe().add("tokenizer.ggml.eos_token_id", uint32_t{0}).add("tokenizer.ggml.eot_token_id", uint32_t{1}));
  EXPECT_TRUE(tokenizer->ends_generation(0));
  EXPECT_TRUE(tokenizer->ends_generation(1));
  EXPECT_FALSE(tokenizer->ends_generation(3));  // by its type it is not a control token here
}

TEST(MakeTokenizer, Llama3TakesWholeWordsAndBeginsWithItsToken) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "llama-bpe");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "aba", "<|begin_of_text|>"});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 1, 3});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"}).add("tokenizer.ggml.bos_token_id", uint32_t{4});
  const auto tokenizer = *make(writer);
  // No merge leads to "aba"; as a whole word it is that token, within a longer one it is not.
  EXPECT_THAT(tokenizer->encode("aba", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(4, 3));
  EXPECT_THAT(tokenizer->encode("abab", ControlTokens::as_text, Beginning::omit), ElementsAre(2, 2));
}

TEST(MakeTokenizer, ReadsBpeOverCharacters) {
  for (const auto& [model, pre] : {std::pair("gemma4", "anything"), std::pair("gpt2", "gemma4")}) {
    GgufTestWriter writer;
    writer.add("tokenizer.ggml.model", model).add("tokenizer.ggml.pre", pre);
    writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"<bos>", "\u2581", "é", "\u2581é"});
    writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1, 1, 1});
    writer.add("tokenizer.ggml.merges", std::vector<std::string>{"\u2581 é"});
    writer.add("tokenizer.ggml.bos_token_id", uint32_t{0}).add("tokenizer.ggml.add_bos_token", false);
    const auto tokenizer = *make(writer);
    EXPECT_THAT(tokenizer->encode("é é", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(0, 2, 3));
  }
}

TEST(MakeTokenizer, ReadsUnigram) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "t5");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "</s>", "<unk>", "\u2581a", "b"});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 2, 1, 1});
  writer.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -1, -2});
  writer.add("tokenizer.ggml.bos_token_id", uint32_t{0}).add("tokenizer.ggml.add_bos_token", true);
  writer.add("tokenizer.ggml.seperator_token_id", uint32_t{1}).add("tokenizer.ggml.add_sep_token", true);
  writer.add("tokenizer.ggml.remove_extra_whitespaces", true);
  const auto tokenizer = *make(writer);
  EXPECT_THAT(tokenizer->encode(" ab?", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(0, 3, 4, 2));
  EXPECT_EQ(tokenizer->closing_token(), 1);
  EXPECT_EQ(tokenizer->pair_separator(), 1);
  EXPECT_THAT(message(writer.add("tokenizer.ggml.precompiled_charsmap", std::vector<float>{1})),
              HasSubstr("not a list of bytes"));
}

TEST(MakeTokenizer, ReadsWordPiece) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "bert");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"});
  const auto tokenizer = *make(writer);
  EXPECT_THAT(tokenizer->encode("Äb b", ControlTokens::as_text, Beginning::add_if_model_does), ElementsAre(1, 3, 4, 0));
  EXPECT_EQ(tokenizer->closing_token(), 2);
  EXPECT_EQ(tokenizer->pair_separator(), std::nullopt);
  const auto cased = *make(writer.add("tokenizer.ggml.normalizer.lowercase", false));
  EXPECT_THAT(cased->encode("ab A", ControlTokens::as_text, Beginning::omit), ElementsAre(3, 4, 0));
}

TEST(MakeTokenizer, ClosesATextWhereTheFileAsksForIt) {
  EXPECT_EQ((*make(bpe().add("tokenizer.ggml.eos_token_id", uint32_t{1})))->closing_token(), std::nullopt);
  const auto tokenizer =
      *make(bpe().add("tokenizer.ggml.eos_token_id", uint32_t{1}).add("tokenizer.ggml.add_eos_token", true));
  EXPECT_EQ(tokenizer->closing_token(), 1);
}

TEST(MakeTokenizer, FindsTheTokensAroundAGap) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "starcoder");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<fim_suffix>", "<fim_prefix>", "<mid>"});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 4, 3, 3});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{}).add("tokenizer.ggml.fim_mid_token_id", uint32_t{3});
  const auto tokenizer = *make(writer);
  EXPECT_EQ(tokenizer->infill_tokens().prefix, 2);
  EXPECT_EQ(tokenizer->infill_tokens().suffix, 1);
  EXPECT_EQ(tokenizer->infill_tokens().middle, 3);
  EXPECT_THAT(tokenizer->encode("a<fim_suffix>a", ControlTokens::as_text, Beginning::omit), ElementsAre(0, 0));
  EXPECT_EQ((*make(bpe()))->infill_tokens().prefix, std::nullopt);
}

TEST(MakeTokenizer, WhatEndsAnswersIsAControlTokenWhateverTheFileCallsIt) {
  const std::vector<int32_t> types = {1, 1, 1, 4, 4, 4};
  const auto tokenizer = *make(bpe().add("tokenizer.ggml.token_type", types));
  EXPECT_THAT(tokenizer->encode("a<|im_end|>b<x>", ControlTokens::as_text, Beginning::omit), ElementsAre(0, 1, 5));
  EXPECT_THAT(tokenizer->encode("a<|im_end|>b", ControlTokens::recognise, Beginning::omit), ElementsAre(0, 3, 1));
  EXPECT_TRUE(tokenizer->ends_generation(3));
}

TEST(MakeTokenizer, EndOfAPartDoesNotEndTheAnswer) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-4o");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"<|end|>", "<|return|>", "<|call|>"});
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>{3, 3, 3});
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{});
  const auto tokenizer = *make(writer);
  EXPECT_FALSE(tokenizer->ends_generation(0));
  EXPECT_TRUE(tokenizer->ends_generation(1));
  EXPECT_TRUE(tokenizer->ends_generation(2));
}

TEST(MakeTokenizer, BadFilesAreErrorsThatSayWhatIsWrong) {
  EXPECT_THAT(message(GgufTestWriter()), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(message(GgufTestWriter().add("tokenizer.ggml.model", "rwkv")),
              testing::AllOf(HasSubstr("\"rwkv\""), HasSubstr("gpt2"), HasSubstr("bert")));
  EXPECT_THAT(message(GgufTestWriter().add("tokenizer.ggml.model", "none")), HasSubstr("has no vocabulary"));
  EXPECT_THAT(message(GgufTestWriter().add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "qwen2")),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(message(bpe().add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 2})), HasSubstr("2 token types"));
  EXPECT_THAT(message(bpe().add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 1, 1, 9})),
              HasSubstr("type 9"));
  EXPECT_THAT(message(bpe().add("tokenizer.ggml.eos_token_id", uint32_t{6})), HasSubstr("end token 6"));
  EXPECT_THAT(message(bpe().add("tokenizer.ggml.bos_token_id", uint64_t{1} << 40)), HasSubstr("not a token"));
  EXPECT_EQ(message(bpe().add("tokenizer.ggml.bos_token_id", uint32_t{0xffffffff})), "no error");
}

TEST(MakeTokenizer, AMissingPreTokenizerIsAnError) {
  GgufTestWriter writer;
  writer.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.tokens", kTokens);
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{});
  EXPECT_THAT(message(writer), HasSubstr("tokenizer.ggml.pre is missing"));
}

}  // namespace
}  // namespace nanomind
