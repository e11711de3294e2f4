// SPDX-License-Identifier: Apache-2.0
// tests/data/checkpoint is a tiny random Llama 3.1 that transformers saved; tests/data/tiny-llama3.gguf has the same
// weights, written by tools/golden with the gguf package. All families: tools/golden/tiny_checkpoints.py.
#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "convert/test_folder.h"
#include "format/gguf.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kCheckpoint = "tests/data/checkpoint";

Result<Converted> convert(const fs::path& source, const fs::path& target, std::optional<DType> dtype = DType::f16) {
  ThreadPool pool(2);
  return convert_checkpoint(source, target, {.dtype = dtype}, {.pool = pool});
}

std::string error_of(const fs::path& source) {
  const TestFolder folder;
  const auto result = convert(source, folder.path() / "out.gguf");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  return result ? "" : result.error().message;
}

float float_at(const GgufTensor& tensor, size_t i) {
  float value;
  std::memcpy(&value, tensor.data.data() + i * sizeof value, sizeof value);
  return value;
}

TEST(Convert, MakesTheTensorsThatTheReferenceWrote) {
  const TestFolder folder;
  const auto made = convert(kCheckpoint, folder.path() / "out.gguf");
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->files.size(), 1U);
  EXPECT_EQ(made->files[0].architecture, "llama");
  const auto ours = GgufFile::open(folder.path() / "out.gguf"), theirs = GgufFile::open("tests/data/tiny-llama3.gguf");
  ASSERT_TRUE(ours && theirs);
  ASSERT_EQ(ours->tensors().size(), theirs->tensors().size());
  for (const GgufTensor& expected : theirs->tensors()) {
    SCOPED_TRACE(expected.name);
    const GgufTensor* tensor = ours->tensor(expected.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, expected.shape);
    ASSERT_EQ(tensor->dtype, expected.dtype);
    if (expected.name != "rope_freqs.weight") {
      EXPECT_TRUE(std::ranges::equal(tensor->data, expected.data));
      continue;
    }
    // Computed in double here and in float there.
    for (size_t i = 0; i < tensor->data.size() / sizeof(float); ++i)
      EXPECT_NEAR(float_at(*tensor, i), float_at(expected, i), 1e-6 * float_at(expected, i));
  }
}

TEST(Convert, SaysWhatTheReferenceSays) {
  const TestFolder folder;
  ASSERT_TRUE(convert(kCheckpoint, folder.path() / "out.gguf"));
  const auto ours = GgufFile::open(folder.path() / "out.gguf"), theirs = GgufFile::open("tests/data/tiny-llama3.gguf");
  ASSERT_TRUE(ours && theirs);
  // The tokenizer's file cannot say that a token is unused, as the reference does of one.
  const std::set<std::string_view> others{"general.name", "general.license", "tokenizer.ggml.token_type"};
  for (size_t i = 0; i < theirs->metadata().size(); ++i) {
    const std::string_view key = theirs->metadata()[i].first;
    if (others.contains(key)) continue;
    SCOPED_TRACE(key);
    const auto same = std::ranges::find(ours->metadata(), key, [](const auto& entry) { return entry.first; });
    ASSERT_NE(same, ours->metadata().end());
    EXPECT_TRUE(std::ranges::equal(ours->metadata_bytes(static_cast<size_t>(same - ours->metadata().begin())),
                                   theirs->metadata_bytes(i)));
  }
  const auto types = ours->get_array("tokenizer.ggml.token_type", GgufType::i32);
  ASSERT_TRUE(types);
  EXPECT_EQ((*types)->integer(0), 1);
  EXPECT_EQ((*types)->integer(258), 3);  // <|start|>
}

TEST(Convert, WritesTheTypeThatIsAsked) {
  const TestFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16, DType::q8_0}) {
    ASSERT_TRUE(convert(kCheckpoint, folder.path() / "out.gguf", dtype));
    const auto file = GgufFile::open(folder.path() / "out.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensor("blk.0.ffn_up.weight")->dtype, dtype);
    EXPECT_EQ(file->tensor("blk.0.attn_norm.weight")->dtype, DType::f32);
  }
}

TEST(Convert, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(error_of("tests/data/nothing"), HasSubstr("There is no"));
  const TestFolder folder;
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json"));
  fs::copy(kCheckpoint, folder.path(), fs::copy_options::recursive);
  folder.write("config.json", R"({"model_type": "mamba9"})");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("type 'mamba9' are not converted; known types: bert"));
  folder.write("config.json", "not JSON");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("no JSON object"));
  folder.write("config.json", R"({"model_type": "llama", "num_attention_heads": 4})");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("has no whole number"));
  fs::copy_file(kCheckpoint / "config.json", folder.path() / "config.json", fs::copy_options::overwrite_existing);
  fs::remove(folder.path() / "tokenizer.json");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("tokenizer.json"));
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 9999}, "merges": []}})");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("has the id 9999, but the model's embedding has 260 rows"));
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                                     "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "x+"},
                                                       "behavior": "Isolated"}})");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("How this model's tokenizer cuts words is not known"));
}

TEST(Convert, StopsOnRequestAndLeavesNothing) {
  const TestFolder folder;
  ThreadPool pool(1);
  std::stop_source stop;
  stop.request_stop();
  const auto result =
      convert_checkpoint(kCheckpoint, folder.path() / "out.gguf", {}, {.pool = pool, .stop = stop.get_token()});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace nanomind
