// SPDX-License-Identifier: Apache-2.0
// Vectors and scores of tiny random encoders. That hidden states are right is shown by models/golden_test.cc.
#include "runtime/embedding.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "format/gguf.h"
#include "models/registry.h"

namespace nanomind {
namespace {

class EmbeddingTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<Engine> load(const std::string& name, int64_t context = 0) {
    auto engine = Engine::load(
        {.model = "tests/data/tiny-" + name + ".gguf", .packed_folder = folder_, .threads = 2, .context = context});
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("nanomind-embedding-test-" + std::to_string(::getpid()));
};

TEST_F(EmbeddingTest, VectorsHaveLengthOneAndTellTextsApart) {
  for (const std::string name : {"bert", "nomic-bert"}) {
    const auto engine = load(name);
    const auto a = engine->embed("a bad cab"), b = engine->embed("deaf bee"), again = engine->embed("a bad cab");
    ASSERT_TRUE(a && b && again);
    ASSERT_EQ(a->size(), 64U);
    double length = 0, likeness = 0;
    for (size_t i = 0; i < a->size(); ++i) {
      length += (*a)[i] * (*a)[i];
      likeness += (*a)[i] * (*b)[i];
    }
    EXPECT_NEAR(length, 1, 1e-5);
    EXPECT_LT(likeness, 0.999);
    EXPECT_EQ(*a, *again);
  }
}

TEST_F(EmbeddingTest, ScoresLieBetweenZeroAndOneAndDependOnBoth) {
  const auto engine = load("xlm-roberta");
  const auto one = engine->rank("abba", "a bad cab"), two = engine->rank("abba", "deaf bee"),
             three = engine->rank("fade", "deaf bee");
  ASSERT_TRUE(one && two && three);
  for (const float score : {*one, *two, *three}) EXPECT_TRUE(score > 0 && score < 1) << score;
  EXPECT_NE(*one, *two);
  EXPECT_NE(*two, *three);
}

// Classifiers of encoders read the first token's state, those of decoders the last one's.
TEST_F(EmbeddingTest, AnEncodersScoreIsThatOfItsFirstToken) {
  const auto file = GgufFile::open("tests/data/tiny-xlm-roberta.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto model = build_model(*file);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->result.kind, ResultKind::rank);
  EXPECT_EQ(model->result.pooling, Pooling::first);
}

TEST_F(EmbeddingTest, WhatAModelCannotDoIsSaid) {
  const auto writer = load("llama"), embedder = load("bert"), ranker = load("xlm-roberta");
  EXPECT_EQ(writer->embed("a").error().code, ErrorCode::unsupported);
  EXPECT_EQ(writer->rank("a", "b").error().code, ErrorCode::unsupported);
  EXPECT_EQ(embedder->rank("a", "b").error().code, ErrorCode::unsupported);
  EXPECT_EQ(ranker->embed("a").error().code, ErrorCode::unsupported);
  EXPECT_EQ(embedder->open_session().error().code, ErrorCode::unsupported);
}

TEST_F(EmbeddingTest, TooLongATextIsRefusedAndTheNextOneServed) {
  const auto engine = load("bert");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a ";
  const auto refused = engine->embed(text);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_full);
  EXPECT_TRUE(engine->embed("a bad cab"));
}

TEST(Embedding, ScoresAreShares) {
  EXPECT_FLOAT_EQ(score_of(std::vector<float>{0}), 0.5F);
  EXPECT_NEAR(score_of(std::vector<float>{2, -1}), 1 / (1 + std::exp(-3.0)), 1e-6);
}

}  // namespace
}  // namespace nanomind
