// SPDX-License-Identifier: Apache-2.0
// Reading good files. Files that are broken or something else: gguf_broken_test.cc.
#include "format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

GgufTestWriter every_type() {
  GgufTestWriter w;
  w.add("u8", uint8_t{200}).add("i8", int8_t{-100}).add("u16", uint16_t{60000}).add("i16", int16_t{-30000});
  w.add("u32", uint32_t{4000000000}).add("i32", int32_t{-2000000000}).add("u64", ~uint64_t{0}).add("i64", int64_t{-5});
  w.add("f32", 0.5f).add("f64", 1e300).add("yes", true).add("no", false).add("text", "héllo");
  w.add("scores", std::vector<float>{-1.5f, 2.0f}).add("types", std::vector<int32_t>{1, -3});
  w.add("tokens", std::vector<std::string>{"a", "", "ccc"}).add("flags", std::vector<bool>{true, false, true});
  w.add("big", std::vector<uint64_t>{~uint64_t{0}, 7}).add("wide", std::vector<double>{1e300, -1e300, 2.9});
  return w;
}

TEST(Gguf, ReadsEveryMetadataType) {
  const auto bytes = every_type().bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.get_uint("u8").value(), 200u);
  EXPECT_EQ(std::get<int64_t>(*file.find("i8")), -100);
  EXPECT_EQ(file.get_uint("u16").value(), 60000u);
  EXPECT_EQ(std::get<int64_t>(*file.find("i16")), -30000);
  EXPECT_EQ(file.get_uint("u32").value(), 4000000000u);
  EXPECT_EQ(std::get<int64_t>(*file.find("i32")), -2000000000);
  EXPECT_EQ(file.get_uint("u64").value(), ~uint64_t{0});
  EXPECT_EQ(std::get<int64_t>(*file.find("i64")), -5);
  EXPECT_EQ(file.get_float("f32").value(), 0.5);
  EXPECT_EQ(file.get_float("f64").value(), 1e300);
  EXPECT_EQ(file.get_float("i64").value(), -5.0);
  EXPECT_TRUE(file.get_bool("yes").value());
  EXPECT_FALSE(file.get_bool("no").value());
  EXPECT_EQ(file.get_string("text").value(), "héllo");
}

TEST(Gguf, ReadsArrays) {
  const auto bytes = every_type().bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_THAT(file.get_array("tokens", GgufType::string).value()->strings, ElementsAre("a", "", "ccc"));
  const GgufArray& scores = *file.get_array("scores", GgufType::f32).value();
  EXPECT_EQ(scores.count, 2u);
  EXPECT_EQ(scores.number(0), -1.5);
  EXPECT_EQ(scores.integer(1), 2);
  EXPECT_EQ(file.get_array("types", GgufType::i32).value()->integer(1), -3);
  const GgufArray& flags = *file.get_array("flags", GgufType::boolean).value();
  EXPECT_EQ(flags.integer(0) * 100 + flags.integer(1) * 10 + flags.integer(2), 101);
}

TEST(Gguf, IntegersOfArraysSaturate) {
  const auto bytes = every_type().bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.get_array("big", GgufType::u64).value()->integer(0), std::numeric_limits<int64_t>::max());
  const GgufArray& wide = *file.get_array("wide", GgufType::f64).value();
  EXPECT_EQ(wide.integer(0), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(wide.integer(1), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(wide.integer(2), 2);
}

TEST(Gguf, LookUpErrorsNameTheKeyAndItsType) {
  const auto bytes = every_type().bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.get_uint("llama.block_count").error().code, ErrorCode::not_found);
  EXPECT_THAT(file.get_uint("llama.block_count").error().message, HasSubstr("no metadata key llama.block_count"));
  EXPECT_THAT(file.get_uint("i8").error().message,
              AllOf(HasSubstr("i8"), HasSubstr("-100"), HasSubstr("non-negative")));
  EXPECT_THAT(file.get_string("u8").error().message, AllOf(HasSubstr("u8"), HasSubstr("instead of a string")));
  EXPECT_THAT(file.get_bool("text").error().message, HasSubstr("a string instead of a boolean"));
  EXPECT_THAT(file.get_float("text").error().message, HasSubstr("instead of a number"));
  EXPECT_THAT(file.get_array("types", GgufType::string).error().message,
              HasSubstr("an array of i32 instead of an array of string"));
}

TEST(Gguf, ReadsTensorsOutermostDimensionFirst) {
  GgufTestWriter w;
  w.add_floats("norm", {3}, {1, 2, 3});
  w.add_tensor("matrix", DType::q8_0, {2, 64}, std::vector<std::byte>(2 * 2 * 34, std::byte{7}));
  w.add_floats("cube", {2, 3, 4}, std::vector<float>(24, 1.0f));
  const auto bytes = w.bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  ASSERT_EQ(file.tensors().size(), 3u);
  const GgufTensor& matrix = *file.tensor("matrix");
  EXPECT_EQ(matrix.shape, (Shape{2, 64}));
  EXPECT_EQ(matrix.dtype, DType::q8_0);
  EXPECT_EQ(matrix.data.size(), 136u);
  EXPECT_EQ(matrix.data.data(), bytes.data() + matrix.offset);
  EXPECT_EQ(matrix.data[0], std::byte{7});
  EXPECT_EQ(file.tensor("cube")->shape, (Shape{2, 3, 4}));
  EXPECT_EQ(std::memcmp(file.tensor("norm")->data.data(), std::vector<float>{1, 2, 3}.data(), 12), 0);
  EXPECT_EQ(file.tensor("missing"), nullptr);
}

TEST(Gguf, ReadsVersion2AndOtherAlignments) {
  GgufTestWriter w;
  w.version = 2;
  w.alignment = 128;
  w.add("general.alignment", uint32_t{128});
  w.add_floats("a", {1}, {1}).add_floats("b", {1}, {2});
  const auto bytes = w.bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.data_offset() % 128, 0u);
  EXPECT_EQ(file.tensor("b")->offset - file.tensor("a")->offset, 128u);
}

TEST(Gguf, KeepsTypesThatWeCannotRun) {
  GgufTestWriter w;
  w.add_raw_tensor("iq3", {256}, 21, std::vector<std::byte>(110));  // IQ3_S
  w.add_raw_tensor("new", {256}, 99, std::vector<std::byte>(32));   // a number of the future
  const auto bytes = w.bytes();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_FALSE(file.tensor("iq3")->dtype);
  EXPECT_EQ(file.tensor("iq3")->data.size(), 110u);
  EXPECT_FALSE(file.tensor("new")->dtype);
  EXPECT_TRUE(file.tensor("new")->data.empty());
}

TEST(Gguf, VocabularyOnlyFileHasNoTensors) {
  GgufTestWriter w;
  w.add("general.architecture", "llama");
  auto bytes = w.bytes();
  bytes.resize(24 + 8 + 20 + 4 + 8 + 5);  // without the padding that nothing follows
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.data_offset(), bytes.size());
}

TEST(Gguf, PartsGiveTheTensorsThatAreThere) {
  GgufTestWriter w;
  w.add_floats("a", {8}, std::vector<float>(8, 1.0f));
  w.add_floats("b", {8}, std::vector<float>(8, 2.0f));
  w.add_floats("c", {8}, std::vector<float>(8, 3.0f));
  const auto bytes = w.bytes();
  const GgufFile whole = GgufFile::parse(bytes).value();
  const std::span<const std::byte> all(bytes);
  const uint64_t c = whole.tensor("c")->offset;
  const GgufPart parts[] = {{0, all.first(whole.tensor("b")->offset)}, {c, all.subspan(c)}};
  const GgufFile file = GgufFile::parse_parts(parts, bytes.size(), "parts").value();
  EXPECT_EQ(file.size_bytes(), bytes.size());
  EXPECT_EQ(file.tensor("a")->data.size(), 32u);
  EXPECT_TRUE(file.tensor("b")->data.empty());
  EXPECT_EQ(file.tensor("c")->data.data(), bytes.data() + c);
}

// Takes less than a tenth of a second; validation that is quadratic in the number of strings would need minutes. The
// limit leaves room for sanitizers on a busy machine.
TEST(Gguf, Load04TimeIsLinearInTheNumberOfStrings) {
  GgufTestWriter w;
  std::vector<std::string> tokens;
  for (int i = 0; i < 150'000; ++i) tokens.push_back("token" + std::to_string(i));
  w.add("tokens", tokens);
  for (int i = 0; i < 100'000; ++i) w.add("key" + std::to_string(i), "value");
  const auto bytes = w.bytes();
  const auto start = std::chrono::steady_clock::now();
  const GgufFile file = GgufFile::parse(bytes).value();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(file.get_string("key99999").value(), "value");
  EXPECT_EQ(file.get_array("tokens", GgufType::string).value()->strings.back(), "token149999");
}

}  // namespace
}  // namespace nanomind
