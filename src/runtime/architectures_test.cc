// SPDX-License-Identifier: Apache-2.0
// Every architecture through engine and device: the prompt at once, token by token, in pieces, and after another
// continuation was taken back, in one batch with others, and saved and restored, against transformers' logits
// (tests/golden/tiny-*.json). That the recorded program itself is right, models_test shows more sharply; here the cache
// is of halves, but in the test that has all in floats.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "format/gguf.h"
#include "runtime/engine.h"
#include "tests/support/difference.h"
#include "tests/support/float_model.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_models.h"

namespace nanomind {
namespace {

using testing::relative_difference;

// Keys and values are rounded to 11 bits, and integer products read 16-bit activations; 24 tokens average little of it
// out. Another rotary pairing, mask or norm moves these models by a tenth and more.
constexpr double kTolerance = 2e-3;
// With weights and cache in floats only sums are rounded, to 24 bits, and in another order than the reference's. A sum
// of n <= 256 products is off by about sqrt(n) * 2^-24 = 1e-6 of its terms; some 30 of them follow each other, which
// adds up to some 1e-5, and cancelling norms and approximated exponentials (2^-22) leave room for ten times that.
constexpr double kFloatTolerance = 1e-4;

class ArchitectureTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = std::string("tiny-") + GetParam();
    model_ = "tests/data/" + name + ".gguf";
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-architectures-test-" + std::to_string(::getpid()));
    const nlohmann::json golden = testing::golden(name);
    ids_ = golden["ids"].get<std::vector<TokenId>>();
    last_ = golden["last_logits"].get<std::vector<float>>();
    first_ = golden["first_logits"].get<std::vector<std::vector<float>>>();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Engine> load(const std::string& isa = "", int64_t cache = 0) const {
    return load({.model = model_, .isa = isa, .cache = cache});
  }
  std::unique_ptr<Engine> load(EngineOptions options) const {
    options.packed_folder = folder_;
    options.threads = 2;
    options.context = 128;
    options.precision = PromptPrecision::high;
    Result<std::unique_ptr<Engine>> engine = Engine::load(options);
    if (engine) return std::move(*engine);
    EXPECT_EQ(engine.error().code, ErrorCode::unsupported) << engine.error().message;
    return nullptr;
  }
  std::span<const TokenId> prompt(size_t tokens) const { return std::span(ids_).first(tokens); }

  std::filesystem::path model_, folder_;
  std::vector<TokenId> ids_;
  std::vector<float> last_;
  std::vector<std::vector<float>> first_;
};

TEST_P(ArchitectureTest, EveryPositionOfThePromptHasTheReferencesLogits) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  const auto session = std::move(*engine->open_session());
  double worst = 0;
  ASSERT_TRUE(session->score(ids_, 0, [&](int64_t position, std::span<const float> logits) {
    worst = std::max(worst, relative_difference(logits, first_[static_cast<size_t>(position)]));
  }));
  EXPECT_LT(worst, 4 * kTolerance);  // of eight logits only
  ASSERT_TRUE(session->feed(ids_, nullptr));
  const double error = relative_difference(session->logits(), last_);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LT(error, kTolerance);
}

TEST_P(ArchitectureTest, TokensPiecesAndReusedPrefixesGiveTheSame) {
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  const auto session = std::move(*engine->open_session());
  for (size_t n = 1; n <= ids_.size(); ++n) ASSERT_TRUE(session->feed(prompt(n), nullptr));
  EXPECT_LT(relative_difference(session->logits(), last_), kTolerance);

  std::vector<TokenId> other(ids_.begin(), ids_.begin() + 9);
  other.insert(other.end(), 30, 1);
  ASSERT_TRUE(session->feed(other, nullptr));
  for (const size_t n : {size_t{10}, size_t{17}, ids_.size()}) ASSERT_TRUE(session->feed(prompt(n), nullptr));
  EXPECT_LT(relative_difference(session->logits(), last_), kTolerance);
}

// Prompt and decoding: the last token is fed alone.
TEST_P(ArchitectureTest, InFloatsEveryInstructionSetMeetsTheReferences) {
  std::filesystem::create_directories(folder_);
  const std::filesystem::path floats = folder_ / "floats.gguf";
  ASSERT_TRUE(testing::write_in_floats(model_, floats));
  double worst = 0;
  int runnable = 0;
  for (const char* isa : testing::kIsas) {
    const auto engine = load({.model = floats, .isa = isa, .kv_type = KvType::f32});
    if (engine == nullptr) continue;
    ++runnable;
    const auto session = std::move(*engine->open_session());
    ASSERT_TRUE(session->feed(prompt(ids_.size() - 1), nullptr));
    ASSERT_TRUE(session->feed(ids_, nullptr));
    const double decoded = relative_difference(session->logits(), last_);
    EXPECT_LT(decoded, kFloatTolerance) << isa;
    const auto other = std::move(*engine->open_session());
    ASSERT_TRUE(other->feed(ids_, nullptr));
    const double read = relative_difference(other->logits(), last_);
    EXPECT_LT(read, kFloatTolerance) << isa;
    worst = std::max({worst, decoded, read});
  }
  EXPECT_GE(runnable, 1);
  RecordProperty("relative_error", fmt::format("{:.2g}", worst));
}

TEST_P(ArchitectureTest, EveryInstructionSetGivesTheReferences) {
  int runnable = 0;
  for (const char* isa : testing::kIsas) {
    const auto engine = load(isa);
    if (engine == nullptr) continue;
    ++runnable;
    const auto session = std::move(*engine->open_session());
    ASSERT_TRUE(session->feed(ids_, nullptr));
    EXPECT_LT(relative_difference(session->logits(), last_), kTolerance) << isa;
  }
  EXPECT_GE(runnable, 1);
}

// Log-probabilities of the likeliest tokens after the prompt, as an answer of one token tells them.
double logprob_difference(const Generation& answer, std::span<const float> logits) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<float> actual, expected;
  for (const TokenLogprob& top : answer.logprobs.at(0).top) {
    actual.push_back(static_cast<float>(top.logprob));
    expected.push_back(static_cast<float>(logits[static_cast<size_t>(top.token)] - std::log(sum)));
  }
  return relative_difference(actual, expected);
}

TEST_P(ArchitectureTest, ABatchOfThreeGivesTheReferences) {
  const auto engine = load("", 384);
  ASSERT_NE(engine, nullptr);
  const GenerateOptions options{.sampler = {.temperature = 0}, .max_tokens = 1, .logprobs = 40};
  std::vector<TokenId> other(ids_.rbegin(), ids_.rend());
  other.resize(7);
  const auto batch = engine->open_batch();
  std::vector<std::unique_ptr<Session>> sessions;
  int checked = 0;
  for (const auto& prompt : {ids_, other, ids_}) {
    sessions.push_back(std::move(*engine->open_session()));
    const bool known = prompt == ids_;
    ASSERT_TRUE(batch->add(*sessions.back(), prompt, options, [&, known](const Result<Generation>& answer) {
      ASSERT_TRUE(answer) << answer.error().message;
      if (!known) return;
      EXPECT_LT(logprob_difference(*answer, last_), kTolerance);
      ++checked;
    }));
  }
  while (batch->step()) {
  }
  EXPECT_EQ(checked, 2);
}

TEST_P(ArchitectureTest, SavedAndRestoredTheSessionGoesOn) {
  const std::filesystem::path file = folder_ / (std::string(GetParam()) + ".session");
  const auto engine = load();
  ASSERT_NE(engine, nullptr);
  {
    const auto session = std::move(*engine->open_session());
    ASSERT_TRUE(session->feed(prompt(11), nullptr));
    ASSERT_TRUE(session->save(file));
  }
  const auto session = std::move(*engine->open_session());
  const auto restored = session->restore(file);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(session->tokens().size(), 11U);
  ASSERT_TRUE(session->feed(ids_, nullptr));
  EXPECT_LT(relative_difference(session->logits(), last_), kTolerance);
}

// Gemma 3n's embeddings of the layers are much of its file, but a token needs one row of them.
TEST(Architectures, TablesThatAreLookedUpCountNeitherAsReadNorAsResident) {
  const auto file = GgufFile::open("tests/data/tiny-gemma3n.gguf");
  ASSERT_TRUE(file);
  const uint64_t table = file->tensor("per_layer_token_embd.weight")->size_bytes;
  const auto folder = std::filesystem::temp_directory_path() / ("nanomind-tables-test-" + std::to_string(::getpid()));
  EngineOptions options{.model = "tests/data/tiny-gemma3n.gguf", .packed_folder = folder};
  options.threads = 2;
  options.context = 128;
  const auto engine = Engine::load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  const EngineInfo& info = (*engine)->info();
  EXPECT_LE(info.decode_bytes + table, info.weight_bytes);
  // What a step reads is all that must be there, but that the small routers are read twice.
  options.memory_bytes = info.decode_bytes + info.activation_bytes + info.kv_bytes;
  EXPECT_TRUE(Engine::load(options));
  options.memory_bytes -= table;
  EXPECT_FALSE(Engine::load(options));
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ArchitectureTest, ::testing::ValuesIn(testing::kTinyModels),
                         [](const auto& test) { return testing::test_name(test.param); });

}  // namespace
}  // namespace nanomind
