// SPDX-License-Identifier: Apache-2.0
// Every architecture as it is recorded, in the slow arithmetic of the reference interpreter, against transformers in
// float64 (tests/golden/tiny-*.json, written by tools/golden): what is compared is the program alone, so little may
// differ. Also the parts of models that no such file shows.
#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "format/gguf.h"
#include "models/registry.h"
#include "ops/reference/dequantize.h"
#include "ops/reference/interpreter.h"
#include "tensor/dtype.h"
#include "tests/support/tiny_models.h"

namespace nanomind {
namespace {

// Weights of the program as dense floats.
std::vector<std::vector<float>> load(const GgufFile& file, const Program& program) {
  std::vector<std::vector<float>> weights;
  for (const WeightInfo& info : program.weights) {
    const GgufTensor& tensor = *file.tensor(info.name);
    const bool is_vector = info.shape.rank == 1;
    const int64_t columns = is_vector ? info.shape.elements() : info.shape.columns();
    const int64_t rows = is_vector ? 1 : info.shape.rows();
    std::vector<float> floats(static_cast<size_t>(rows * columns));
    const std::byte* first = tensor.data.data() + row_bytes(info.dtype, static_cast<size_t>(is_vector ? 1 : columns)) *
                                                      static_cast<size_t>(info.first_row);
    for (int64_t i = 0; i < rows; ++i) {
      const size_t offset = row_bytes(info.dtype, static_cast<size_t>(columns)) * static_cast<size_t>(i);
      reference::dequantize_row(info.dtype, first + offset, columns, floats.data() + i * columns);
    }
    weights.push_back(std::move(floats));
  }
  return weights;
}

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return std::string("tiny-") + GetParam(); }
};

TEST_P(GoldenTest, TheRecordedProgramGivesTheReferences) {
  const nlohmann::json golden = testing::golden(name());
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  const auto file = GgufFile::open("tests/data/" + name() + ".gguf");
  ASSERT_TRUE(file) << file.error().message;
  Result<Model> model = build_model(*file);
  ASSERT_TRUE(model) << model.error().message;
  fit_context(*model, 128);
  std::vector<int32_t> all(ids.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  reference::Interpreter interpreter(model->program, load(*file, model->program));
  const std::vector<float> logits = interpreter.run(ids, all);

  const auto vocabulary =
      static_cast<size_t>(model->program.values[static_cast<size_t>(model->program.output)].columns);
  const auto first = golden["first_logits"].get<std::vector<std::vector<double>>>();
  const auto last = golden["last_logits"].get<std::vector<double>>();
  double squares = 0, size = 0;
  const auto compare = [&](size_t at, double expected) {
    squares += std::pow(logits[at] - expected, 2);
    size += std::pow(expected, 2);
  };
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t c = 0; c < first[t].size(); ++c) compare(t * vocabulary + c, first[t][c]);
  }
  ASSERT_EQ(last.size(), vocabulary);
  for (size_t c = 0; c < vocabulary; ++c) compare((ids.size() - 1) * vocabulary + c, last[c]);
  const double error = std::sqrt(squares / size);
  RecordProperty("relative_error", std::to_string(error));
  // Values between operations are floats here and some angles in transformers; the file's numbers have five or six
  // digits.
  EXPECT_LT(error, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenTest, ::testing::ValuesIn(testing::kTinyModels),
                         [](const auto& test) { return testing::test_name(test.param); });

INSTANTIATE_TEST_SUITE_P(TinyEncoders, GoldenTest, ::testing::ValuesIn(testing::kTinyEncoders),
                         [](const auto& test) { return testing::test_name(test.param); });

TEST(Models, EveryArchitectureHasATinyModel) {
  std::set<std::string> tested;
  std::vector<std::string> tiny(std::begin(testing::kTinyModels), std::end(testing::kTinyModels));
  tiny.insert(tiny.end(), std::begin(testing::kTinyEncoders), std::end(testing::kTinyEncoders));
  for (const std::string& name : tiny) {
    const auto file = GgufFile::open("tests/data/tiny-" + name + ".gguf");
    ASSERT_TRUE(file) << file.error().message;
    tested.emplace(file->get_string("general.architecture").value());
  }
  // Those of models that see have their expected values in runtime/vision_golden_test.cc.
  for (const char* name : {"qwen2_5_vl", "qwen3_vl"}) {
    const auto file = GgufFile::open(std::string("tests/data/vision/tiny-") + name + ".gguf");
    ASSERT_TRUE(file) << file.error().message;
    tested.emplace(file->get_string("general.architecture").value());
  }
  for (const ArchitectureInfo& architecture : architectures())
    EXPECT_TRUE(tested.contains(std::string(architecture.name))) << architecture.name;
}

TEST(Models, LongContextsHaveTheirOwnRotaryTables) {
  const auto file = GgufFile::open("tests/data/tiny-phi3.gguf");
  ASSERT_TRUE(file) << file.error().message;
  Model model = std::move(*build_model(*file));
  // Of 12 rotated columns, base 10000: pair 5 turns by 10000^(-10/12) per token, divided by the file's factors.
  const double plain = std::pow(10000.0, -10.0 / 12.0);
  fit_context(model, 16);
  EXPECT_NEAR(model.program.ropes[0].inverse_frequency[5], plain / 1.5, 1e-9);
  fit_context(model, 17);
  EXPECT_NEAR(model.program.ropes[0].inverse_frequency[5], plain / 8.0, 1e-9);
}

}  // namespace
}  // namespace nanomind
