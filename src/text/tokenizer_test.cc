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

TEST(MakeTokenizer, BadFilesAreErrorsThatSayWhatIsWrong) {
  EXPECT_THAT(message(GgufTestWriter()), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(message(GgufTestWriter().add("tokenizer.ggml.model", "bert")),
              testing::AllOf(HasSubstr("\"bert\""), HasSubstr("gpt2"), HasSubstr("llama")));
  EXPECT_THAT(message(GgufTestWriter().add("tokenizer.ggml.model", "gpt2")), HasSubstr("tokenizer.ggml.tokens"));
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
