// SPDX-License-Identifier: Apache-2.0
// Tiny random models that embed or rank, from the publisher's folder to the result: converted, loaded, and compared
// with the ids of the tokenizers library and with transformers' vectors and scores in float64
// (tools/golden/tiny_embedders.py).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "convert/convert.h"
#include "format/gguf.h"
#include "runtime/embedding.h"
#include "runtime/engine.h"
#include "tests/support/difference.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_models.h"

namespace nanomind {
namespace {

using testing::relative_difference;

// Matrices and cache are floats; architectures_test.cc says what rounding remains.
constexpr double kTolerance = 1e-4;

constexpr const char* kEmbedders[] = {"bert", "nomic-bert", "xlm-roberta", "qwen3-embedding"};
constexpr const char* kRankers[] = {"xlm-roberta-reranker", "qwen3-reranker", "qwen3-classifier"};

class ConvertedTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    ThreadPool pool(2);
    const auto made = convert_checkpoint(std::filesystem::path("tests/data/embedders") / GetParam(), model_,
                                         {.dtype = DType::f32}, {.pool = pool});
    ASSERT_TRUE(made) << made.error().message;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Null where this machine lacks the instruction set.
  std::unique_ptr<Engine> load(const std::string& isa) const {
    auto engine = Engine::load({.model = model_,
                                .packed_folder = folder_,
                                .isa = isa,
                                .threads = 2,
                                .precision = PromptPrecision::high,
                                .kv_type = KvType::f32});
    if (engine) return std::move(*engine);
    EXPECT_EQ(engine.error().code, ErrorCode::unsupported) << engine.error().message;
    return nullptr;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("nanomind-embedders-test-" + std::to_string(::getpid()));
  std::filesystem::path model_ = folder_ / "model.gguf";
};

class Embedders : public ConvertedTest {};
class Rankers : public ConvertedTest {};

TEST_P(Embedders, HaveTheReferencesIdsAndVectorsOnEveryInstructionSet) {
  const nlohmann::json golden = testing::golden("embedders")["embedders"][GetParam()];
  double worst = 0;
  size_t compared = 0;
  for (const char* isa : testing::kIsas) {
    const auto engine = load(isa);
    if (engine == nullptr) continue;
    for (const auto& expected : golden) {
      const auto text = expected["text"].get<std::string>();
      SCOPED_TRACE(fmt::format("{}: {}", isa, text));
      EXPECT_EQ(text_tokens(engine->tokenizer(), text), expected["ids"].get<std::vector<TokenId>>());
      const auto vector = engine->embed(text);
      ASSERT_TRUE(vector) << vector.error().message;
      const double error = relative_difference(*vector, expected["vector"].get<std::vector<float>>());
      EXPECT_LT(error, kTolerance);
      worst = std::max(worst, error);
      ++compared;
    }
  }
  EXPECT_GE(compared, 4U);
  RecordProperty("relative_error", fmt::format("{:.2g}", worst));
}

TEST_P(Rankers, HaveTheReferencesScoresOnEveryInstructionSet) {
  const nlohmann::json golden = testing::golden("embedders")["rankers"][GetParam()];
  size_t compared = 0;
  for (const char* isa : testing::kIsas) {
    const auto engine = load(isa);
    if (engine == nullptr) continue;
    for (const auto& expected : golden) {
      const auto query = expected["query"].get<std::string>(), document = expected["document"].get<std::string>();
      SCOPED_TRACE(fmt::format("{}: {} / {}", isa, query, document));
      const auto score = engine->rank(query, document);
      ASSERT_TRUE(score) << score.error().message;
      const auto right = expected["score"].get<double>();
      EXPECT_NEAR(*score, right, kTolerance * right);
      ++compared;
    }
  }
  EXPECT_GE(compared, 4U);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Embedders, ::testing::ValuesIn(kEmbedders),
                         [](const auto& test) { return testing::test_name(test.param); });
INSTANTIATE_TEST_SUITE_P(Tiny, Rankers, ::testing::ValuesIn(kRankers),
                         [](const auto& test) { return testing::test_name(test.param); });

}  // namespace
}  // namespace nanomind
