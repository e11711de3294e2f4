// SPDX-License-Identifier: Apache-2.0
// What files say of tiny models that embed or rank (tests/data/embedders, saved by transformers): by the rules of
// llama.cpp's convert_hf_to_gguf.py. What they compute is shown by tests/golden/embedders_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "convert/convert.h"
#include "convert/test_folder.h"
#include "format/gguf.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A copy of a checkpoint in a folder of that name, to be changed and converted.
class Copy {
 public:
  explicit Copy(const std::string& checkpoint, const std::string& name = "model") : source_(folder_.path() / name) {
    fs::copy(fs::path("tests/data/embedders") / checkpoint, source_, fs::copy_options::recursive);
  }

  void write(const std::string& name, const std::string& text) const { std::ofstream(source_ / name) << text; }
  void remove(const std::string& name) const { fs::remove_all(source_ / name); }
  Json read(const std::string& name) const { return Json::parse(std::ifstream(source_ / name)); }
  void set(const std::string& key, const Json& value) const {
    Json config = read("config.json");
    config[key] = value;
    write("config.json", config.dump());
  }

  Result<GgufFile> convert() const {
    ThreadPool pool(1);
    TRY(convert_checkpoint(source_, folder_.path() / "out.gguf", {.dtype = DType::f16}, {.pool = pool}));
    return GgufFile::open(folder_.path() / "out.gguf");
  }
  std::string error() const {
    const auto file = convert();
    return file ? "" : file.error().message;
  }

 private:
  TestFolder folder_;
  fs::path source_;
};

// -1: the file has no such key.
int64_t number(const Result<GgufFile>& file, const char* key) {
  EXPECT_TRUE(file) << file.error().message;
  return file && file->find(key) != nullptr ? static_cast<int64_t>(*file->get_uint(key)) : -1;
}
bool flag(const Result<GgufFile>& file, const char* key) { return file && file->get_bool(key).value_or(false); }

TEST(Embedders, TheirPoolingIsThatOfTheirModules) {
  EXPECT_EQ(number(Copy("bert").convert(), "bert.pooling_type"), 1);
  EXPECT_EQ(number(Copy("qwen3-embedding").convert(), "qwen3.pooling_type"), 3);
  const Copy writer("qwen3-embedding");
  writer.remove("modules.json");
  writer.remove("1_Pooling");
  EXPECT_EQ(number(writer.convert(), "qwen3.pooling_type"), -1);
  const Copy newer("qwen3-embedding");
  newer.write("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  EXPECT_EQ(number(newer.convert(), "qwen3.pooling_type"), 1);
}

TEST(Embedders, WhatFilesCannotSayIsRefused) {
  const Copy pooled("qwen3-embedding");
  pooled.write("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(pooled.error(), HasSubstr("neither the mean nor the first nor the last"));
  const Copy dense("bert");
  dense.write("modules.json", R"([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
                                  {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])");
  EXPECT_THAT(dense.error(), HasSubstr("models.Dense"));
}

TEST(Embedders, TheTokenBehindATextIsTheTemplates) {
  const auto file = Copy("qwen3-embedding").convert();
  EXPECT_TRUE(flag(file, "tokenizer.ggml.add_eos_token"));
  EXPECT_FALSE(flag(file, "tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(number(file, "tokenizer.ggml.eos_token_id"), 259);  // <|endoftext|>
  EXPECT_EQ(number(file, "tokenizer.ggml.eot_token_id"), 261);  // <|im_end|>
  const auto writer = Copy("qwen3-reranker").convert();
  EXPECT_FALSE(flag(writer, "tokenizer.ggml.add_eos_token"));
  EXPECT_EQ(number(writer, "tokenizer.ggml.eos_token_id"), 261);
}

}  // namespace
}  // namespace nanomind
