// SPDX-License-Identifier: Apache-2.0
// The vocabularies of real models, read from their files in the folder that NANOMIND_TEST_MODELS names. Expected ids
// come from the libraries the models were trained with (tools/golden/tokenizer_ids.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "text/test_data.h"
#include "text/tokenizer.h"

namespace nanomind {
namespace {

struct Case {
  std::string file;
  std::string ids;
  std::vector<TokenId> beginning;  // what "Hello" begins with when the beginning token may be added
  std::string end_of_turn;         // a control token that ends an answer
};

class RealVocabulary : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("NANOMIND_TEST_MODELS");
    if (folder == nullptr) GTEST_SKIP() << "NANOMIND_TEST_MODELS is not set.";
    const std::filesystem::path path = std::filesystem::path(folder) / GetParam().file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist.";
    auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    const CpuTimer timer;
    auto tokenizer = make_tokenizer(*file);
    RecordProperty("load_ms", static_cast<int>(timer.elapsed_s() * 1000));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(RealVocabulary, IdsAreThoseOfTheReference) { EXPECT_GT(expect_golden_ids(*tokenizer_, GetParam().ids), 1900); }

TEST_P(RealVocabulary, BeginningAndEnds) {
  auto expected = GetParam().beginning;
  for (const TokenId id : tokenizer_->encode("Hello", ControlTokens::as_text, Beginning::omit)) expected.push_back(id);
  EXPECT_EQ(tokenizer_->encode("Hello", ControlTokens::as_text, Beginning::add_if_model_does), expected);
  const auto end = tokenizer_->encode(GetParam().end_of_turn, ControlTokens::recognise, Beginning::omit);
  ASSERT_EQ(end.size(), 1u);
  EXPECT_TRUE(tokenizer_->ends_generation(end[0]));
  EXPECT_EQ(tokenizer_->piece(end[0]), GetParam().end_of_turn);
  EXPECT_EQ(tokenizer_->bytes(end[0]), "");
  EXPECT_GT(tokenizer_->encode(GetParam().end_of_turn, ControlTokens::as_text, Beginning::omit).size(), 1u);
}

TEST_P(RealVocabulary, LongRunsTakeLinearTime) {
  for (const std::string_view unit : {"A", " ", "\n", "가", "7", "=", "the "}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const CpuTimer timer;
    const auto ids = tokenizer_->encode(text, ControlTokens::recognise, Beginning::omit);
    const double elapsed_s = timer.elapsed_s();
    EXPECT_EQ(decode(*tokenizer_, ids), text);
    EXPECT_LT(elapsed_s, kLinearSeconds) << unit;
    RecordProperty("ms_" + std::to_string(static_cast<unsigned char>(unit[0])), static_cast<int>(elapsed_s * 1000));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealVocabulary,
                         testing::Values(Case{"smollm2-135m.gguf", "smollm2-135m", {}, "<|im_end|>"},
                                         Case{"qwen2.5-coder-0.5b.gguf", "qwen2.5-coder", {}, "<|im_end|>"},
                                         Case{"qwen2.5-coder-1.5b.gguf", "qwen2.5-coder", {}, "<|endoftext|>"},
                                         Case{"gemma-3-270m.gguf", "gemma-3", {2}, "<end_of_turn>"}));

struct Published {
  std::string name;
  std::vector<TokenId> beginning;  // what is added before a text
};

// Files of nothing but a published vocabulary, as tools/golden/tokenizer_published.py writes them.
class PublishedVocabulary : public testing::TestWithParam<Published> {};

TEST_P(PublishedVocabulary, IdsAreThoseOfTheReference) {
  const char* folder = std::getenv("NANOMIND_TEST_MODELS");
  if (folder == nullptr) GTEST_SKIP() << "NANOMIND_TEST_MODELS is not set.";
  const auto path = std::filesystem::path(folder) / (GetParam().name + ".gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist.";
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto tokenizer = make_tokenizer(*file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_GT(expect_golden_ids(**tokenizer, GetParam().name), 2300);
  EXPECT_EQ((*tokenizer)->encode("", ControlTokens::as_text, Beginning::add_if_model_does), GetParam().beginning);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, PublishedVocabulary,
                         testing::Values(Published{"llama-3.1", {128000}}, Published{"gpt-oss", {}},
                                         Published{"deepseek-v3", {}}, Published{"llama-2", {1}},
                                         Published{"gemma-3-characters", {2}}, Published{"minilm", {101}}));

}  // namespace
}  // namespace nanomind
