// SPDX-License-Identifier: Apache-2.0
// Binding of weights: parts of joined tensors, matrices of experts, and what is said of files that do not fit.
#include "models/weights.h"

#include <gtest/gtest.h>

#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

// Tensors of zeros, of the given shapes.
class WeightsTest : public ::testing::Test {
 protected:
  void add(std::string_view name, const Shape& shape) {
    const std::vector<std::byte> zeros(static_cast<size_t>(shape.elements()) * sizeof(float));
    writer_.add_tensor(name, DType::f32, shape, zeros);
  }
  WeightReader& read() {
    bytes_ = writer_.bytes();
    file_.emplace(std::move(*GgufFile::parse(bytes_)));
    return reader_.emplace(*file_, recorder_, "tiny");
  }
  // The program's only weight.
  WeightInfo bound() {
    const Value x = recorder_.embed(recorder_.weight({"table", DType::f32, {1, 32}}));
    return std::move(recorder_).finish(recorder_.select_outputs(x)).weights[0];
  }

  GgufTestWriter writer_;
  std::vector<std::byte> bytes_;
  std::optional<GgufFile> file_;
  Recorder recorder_;
  std::optional<WeightReader> reader_;
};

TEST_F(WeightsTest, BindsRowsOfJoinedMatricesWhereRowGroupsBegin) {
  add("qkv.weight", {72, 32});
  WeightReader& reader = read();
  EXPECT_TRUE(reader.matrix_rows("qkv", {48, 24, 72}, 32).present());
  ASSERT_TRUE(reader.check());
  const WeightInfo info = bound();
  EXPECT_EQ(info.name, "qkv.weight");
  EXPECT_EQ(info.first_row, 48);
  EXPECT_EQ(info.shape, (Shape{24, 32}));
}

TEST_F(WeightsTest, RefusesJoinedMatricesThatShareARowGroup) {
  add("qkv.weight", {72, 32});
  WeightReader& reader = read();
  (void)reader.matrix_rows("qkv", {24, 48, 72}, 32);
  (void)reader.matrix_rows("qkv", {0, 24, 72}, 32);
  const Result<void> result = reader.check();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_NE(result.error().message.find("multiples of 16"), std::string::npos);
}

TEST_F(WeightsTest, AJoinedMatrixOfOtherRowsIsDamaged) {
  add("qkv.weight", {64, 32});
  WeightReader& reader = read();
  (void)reader.matrix_rows("qkv", {48, 24, 72}, 32);
  const Result<void> result = reader.check();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::corrupt);
  EXPECT_NE(result.error().message.find("[64, 32], expected [72, 32]"), std::string::npos);
}

TEST_F(WeightsTest, BindsExpertsAndRefusesThoseOfOddSizes) {
  add("up.weight", {3, 16, 32});
  add("odd.weight", {3, 24, 32});
  WeightReader& reader = read();
  (void)reader.experts("up", 3, 16, 32);
  EXPECT_TRUE(reader.check());
  (void)reader.experts("odd", 3, 24, 32);
  const Result<void> result = reader.check();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
}

TEST_F(WeightsTest, NamesEachTypeThatCannotRunOnceAndWhatToDo) {
  constexpr uint32_t kIq2Xxs = 16, kNoType = 200;
  for (const char* name : {"a.weight", "b.weight"}) {
    writer_.add_raw_tensor(name, {256, 1}, kIq2Xxs, std::vector<std::byte>(66));
  }
  writer_.add_raw_tensor("c.weight", {256, 1}, kNoType, std::vector<std::byte>(64));
  WeightReader& reader = read();
  for (const char* name : {"a", "b", "c"}) (void)reader.matrix(name, 1, 256);
  const Result<void> result = reader.check();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  const std::string& message = result.error().message;
  EXPECT_NE(message.find("Tensor a.weight has type IQ2_XXS, which is not supported. Get"), std::string::npos);
  EXPECT_EQ(message.find("b.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("Tensor c.weight has type number 200"), std::string::npos) << message;
}

TEST_F(WeightsTest, FloatsOfMissingTensorsAreAFailureAndHarmless) {
  add("factors.weight", {4});
  WeightReader& reader = read();
  EXPECT_EQ(reader.floats("factors", 4), std::vector<float>(4, 0.0F));
  EXPECT_TRUE(reader.check());
  EXPECT_EQ(reader.floats("factors", 5), std::vector<float>(5, 1.0F));
  EXPECT_FALSE(reader.check());
}

}  // namespace
}  // namespace nanomind
