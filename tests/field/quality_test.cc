// SPDX-License-Identifier: Apache-2.0
// Field cases of quality and determinism (docs/field-cases.md), on tiny random models.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "convert/quantize.h"
#include "runtime/engine.h"

namespace nanomind {
namespace {

class QualityFieldCases : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-field-quality-test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Engine> load(const std::filesystem::path& model) const {
    auto engine = Engine::load({.model = model, .packed_folder = folder_, .threads = 2, .context = 128});
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }

  std::filesystem::path folder_;
};

using Row = std::vector<double>;

// Log-probabilities of every token at every position of a text.
std::vector<Row> log_probabilities(Engine& engine, std::span<const TokenId> tokens) {
  std::vector<Row> rows;
  const auto scored = (*engine.open_session())->score(tokens, 0, [&](int64_t, std::span<const float> logits) {
    const double best = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - best);
    Row row;
    for (const float logit : logits) row.push_back(logit - best - std::log(sum));
    rows.push_back(std::move(row));
  });
  EXPECT_TRUE(scored);
  return rows;
}

// Mean of the Kullback-Leibler divergence over positions, in nats.
double divergence(const std::vector<Row>& reference, const std::vector<Row>& other) {
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    for (size_t j = 0; j < reference[i].size(); ++j) {
      sum += std::exp(reference[i][j]) * (reference[i][j] - other[i][j]);
    }
  }
  return sum / static_cast<double>(reference.size());
}

TEST_F(QualityFieldCases, Qual01QuantisingCostsNoMoreThanItsBits) {
  const std::filesystem::path source = "tests/data/tiny-llama3.gguf";
  std::vector<TokenId> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back(5 + i * 37 % 200);
  const auto reference = log_probabilities(*load(source), tokens);
  // A weight of b bits has an error of about 2^-b of its block's largest; the divergence goes with its square. 8 bits
  // are therefore 256 times as close as 4, and 4 bits of this model cost less than a hundredth of a nat.
  ThreadPool pool(2);
  const auto cost = [&](const char* type) {
    const std::filesystem::path target = folder_ / (std::string(type) + ".gguf");
    const auto made = quantize_file(source, target, {.mix = parse_mix(type).value()}, {.pool = pool});
    EXPECT_TRUE(made) << made.error().message;
    EXPECT_LT(made->bytes, made->source_bytes);
    return divergence(reference, log_probabilities(*load(target), tokens));
  };
  const double q8 = cost("q8_0"), q4 = cost("q4_0");
  EXPECT_GT(q8, 0);
  EXPECT_LT(q8, 1e-4);
  EXPECT_GT(q4, 10 * q8);
  EXPECT_LT(q4, 1e-2);
  RecordProperty("q8_0", std::to_string(q8));
  RecordProperty("q4_0", std::to_string(q4));
}

TEST_F(QualityFieldCases, Qual03TemperatureZeroIsTheLargestLogitWhateverElseIsSet) {
  const auto engine = load("tests/data/tiny-qwen2.gguf");
  const auto session = std::move(*engine->open_session());
  std::vector<TokenId> tokens = engine->tokenizer().encode("1 1 1 1 1", ControlTokens::as_text, Beginning::omit);
  GenerateOptions options{.max_tokens = 16, .end_tokens = GenerateOptions::EndTokens::ignore};
  options.sampler = {.temperature = 0,
                     .top_k = 2,
                     .top_p = 0.1,
                     .min_p = 0.9,
                     .typical_p = 0.2,
                     .repetition_penalty = 2,
                     .presence_penalty = 5,
                     .frequency_penalty = 5,
                     .repetition_window = -1,
                     .seed = 7};
  options.sampler.dry.multiplier = 5;
  options.sampler.xtc = {.probability = 1, .threshold = 0.01};
  options.sampler.mirostat.version = MirostatOptions::Version::v2;
  const auto answer = session->generate(tokens, options);
  ASSERT_TRUE(answer) << answer.error().message;
  const auto other = std::move(*engine->open_session());
  for (const TokenId token : answer->tokens) {
    ASSERT_TRUE(other->feed(tokens, nullptr));
    const auto logits = other->logits();
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
    tokens.push_back(token);
  }
}

}  // namespace
}  // namespace nanomind
