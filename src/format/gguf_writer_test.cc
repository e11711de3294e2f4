// SPDX-License-Identifier: Apache-2.0
#include "format/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path scratch() { return fs::path(testing::TempDir()) / ("writer-" + std::to_string(::getpid()) + ".gguf"); }

std::vector<std::byte> read_all(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The writer of the tests builds the same file in one piece.
TEST(GgufWriter, WritesWhatAnotherWriterDoes) {
  GgufTestWriter expected;
  expected.add("general.architecture", "llama")
      .add("llama.block_count", uint32_t{2})
      .add("llama.eps", 0.5F)
      .add("tokenizer.ggml.add_bos_token", true)
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "", "b"})
      .add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 2, 3});
  const std::vector<std::byte> first(2 * 34, std::byte{7}), second(12, std::byte{9});
  expected.add_tensor("first", DType::q8_0, {2, 32}, first).add_tensor("second", DType::f32, {3}, second);

  GgufMetadata metadata;
  metadata.add("general.architecture", "other")
      .add("llama.block_count", uint32_t{2})
      .add("llama.eps", 0.5F)
      .add("tokenizer.ggml.add_bos_token", true)
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "", "b"})
      .add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 2, 3})
      .add("general.architecture", "llama");
  const std::vector<GgufTensorSpec> tensors{{"first", DType::q8_0, {2, 32}}, {"second", DType::f32, {3}}};
  auto writer = GgufWriter::create(scratch(), metadata, tensors);
  ASSERT_TRUE(writer) << writer.error().message;
  ASSERT_TRUE(writer->write(1, 0, second));
  ASSERT_TRUE(writer->write(0, 34, std::span(first).subspan(34)));
  ASSERT_TRUE(writer->write(0, 0, std::span(first).first(34)));
  EXPECT_FALSE(fs::exists(scratch()));
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(read_all(scratch()), expected.bytes());
  fs::remove(scratch());
}

TEST(GgufWriter, CopiesMetadataOfAnotherFile) {
  GgufTestWriter source;
  source.add("general.architecture", "llama").add("list", std::vector<float>{1, 2}).add("big", uint64_t{1} << 40);
  source.add_floats("t", {1}, {5});
  const auto bytes = source.bytes();
  const auto file = GgufFile::parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  GgufMetadata metadata;
  for (size_t i = 0; i < file->metadata().size(); ++i) metadata.add_from(*file, i);
  const std::vector<GgufTensorSpec> tensors{{"t", DType::f32, {1}}};
  auto writer = GgufWriter::create(scratch(), metadata, tensors);
  ASSERT_TRUE(writer) << writer.error().message;
  const float five = 5;
  ASSERT_TRUE(writer->write(0, 0, std::as_bytes(std::span(&five, 1))));
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(read_all(scratch()), bytes);
  fs::remove(scratch());
}

TEST(GgufWriter, LeavesNothingWithoutFinish) {
  const std::vector<GgufTensorSpec> tensors{{"t", DType::f32, {4}}};
  const fs::path folder = scratch().replace_extension("folder");
  fs::create_directories(folder);
  ASSERT_TRUE(GgufWriter::create(folder / "out.gguf", {}, tensors));
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove(folder);
}

TEST(GgufWriter, RefusesTwoTensorsOfOneName) {
  const std::vector<GgufTensorSpec> tensors{{"t", DType::f32, {4}}, {"t", DType::f32, {4}}};
  const auto writer = GgufWriter::create(scratch(), {}, tensors);
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message, HasSubstr("two tensors 't'"));
}

}  // namespace
}  // namespace nanomind
