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
  EXPECT_EQ(number(Copy("nomic-bert").convert(), "nomic-bert.pooling_type"), 1);
  EXPECT_EQ(number(Copy("xlm-roberta").convert(), "bert.pooling_type"), 2);
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
  const Copy mixture("nomic-bert");
  mixture.set("moe_every_n_layers", 2);
  EXPECT_THAT(mixture.error(), HasSubstr("Nomic Embed"));
  const Copy lowercase("xlm-roberta");
  Json tokenizer = lowercase.read("tokenizer.json");
  tokenizer["normalizer"]["normalizers"].push_back({{"type", "Lowercase"}});
  lowercase.write("tokenizer.json", tokenizer.dump());
  EXPECT_THAT(lowercase.error(), HasSubstr("Lowercase"));
}

TEST(Embedders, TheTokenBehindATextIsTheTemplates) {
  const auto file = Copy("qwen3-embedding").convert();
  EXPECT_TRUE(flag(file, "tokenizer.ggml.add_eos_token"));
  EXPECT_FALSE(flag(file, "tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(number(file, "tokenizer.ggml.eos_token_id"), 259);  // <|endoftext|>
  EXPECT_EQ(number(file, "tokenizer.ggml.eot_token_id"), 261);  // <|im_end|>
  EXPECT_FALSE(flag(file, "tokenizer.ggml.add_sep_token"));
  const auto writer = Copy("qwen3-reranker").convert();
  EXPECT_FALSE(flag(writer, "tokenizer.ggml.add_eos_token"));
  EXPECT_EQ(number(writer, "tokenizer.ggml.eos_token_id"), 261);
  // Its texts are two tokens apart.
  const auto pairs = Copy("xlm-roberta").convert();
  for (const char* key : {"add_bos_token", "add_eos_token", "add_sep_token", "remove_extra_whitespaces"})
    EXPECT_TRUE(flag(pairs, (std::string("tokenizer.ggml.") + key).c_str())) << key;
  EXPECT_EQ(number(Copy("bert").convert(), "tokenizer.ggml.bos_token_id"), 2);  // [CLS] elsewhere than BERT's first
}

TEST(Embedders, PositionsOfXlmRobertaBeginBehindThePadding) {
  const auto file = Copy("xlm-roberta").convert();
  EXPECT_EQ(number(file, "bert.context_length"), 128);
  EXPECT_EQ(file->tensor("position_embd.weight")->shape, (Shape{128, 32}));
}

TEST(Embedders, SettingsOfNomicEmbedHaveTwoSpellings) {
  const Copy modern_copy("nomic-bert"), published_copy("nomic-bert");
  published_copy.write("config.json",
                       R"({"model_type": "nomic_bert", "n_positions": 128, "n_embd": 32, "n_inner": 48, "n_layer": 2,
      "n_head": 2, "layer_norm_epsilon": 1e-12, "vocab_size": 62, "rotary_emb_base": 1000, "type_vocab_size": 2,
      "activation_function": "swiglu", "causal": false, "prenorm": false, "rotary_emb_fraction": 1.0,
      "rotary_emb_interleaved": false, "rotary_emb_scale_base": null, "max_trained_positions": 2048})");
  const auto modern = modern_copy.convert(), published = published_copy.convert();
  ASSERT_TRUE(modern) << modern.error().message;
  ASSERT_TRUE(published) << published.error().message;
  ASSERT_EQ(published->metadata().size(), modern->metadata().size());
  for (size_t i = 0; i < modern->metadata().size(); ++i) {
    SCOPED_TRACE(modern->metadata()[i].first);
    EXPECT_EQ(published->metadata()[i].first, modern->metadata()[i].first);
    EXPECT_TRUE(std::ranges::equal(published->metadata_bytes(i), modern->metadata_bytes(i)));
  }
}

TEST(Rankers, AreKnownByClassNameAndCard) {
  const auto pooling = [](const Copy& copy) { return number(copy.convert(), "qwen3.pooling_type"); };
  EXPECT_EQ(pooling(Copy("qwen3-reranker")), -1);
  EXPECT_EQ(pooling(Copy("qwen3-reranker", "Qwen3-Reranker-0.6B")), 4);
  EXPECT_EQ(pooling(Copy("qwen3-classifier")), 4);
  const Copy named("qwen3-reranker"), described("qwen3-reranker"), mentioned("qwen3-reranker");
  named.set("_name_or_path", "Qwen/Qwen3-Reranker-0.6B");
  EXPECT_EQ(pooling(named), 4);
  described.write("README.md", "---\nlicense: apache-2.0\n---\n# Qwen3-Reranker-0.6B\n");
  EXPECT_EQ(pooling(described), 4);
  mentioned.write("README.md", "# Qwen3-0.6B\nSee also Qwen3-Reranker.\n");
  EXPECT_EQ(pooling(mentioned), -1);
  EXPECT_EQ(number(Copy("xlm-roberta-reranker").convert(), "bert.pooling_type"), 4);
}

TEST(Rankers, KeepTheHeadsRowsOfYesAndNo) {
  const auto file = Copy("qwen3-reranker", "qwen3-reranker").convert();
  ASSERT_TRUE(file) << file.error().message;
  const auto labels = file->get_array("qwen3.classifier.output_labels", GgufType::string);
  ASSERT_TRUE(labels);
  EXPECT_EQ((*labels)->count, 2U);
  EXPECT_THAT(std::string(*file->get_string("tokenizer.chat_template.rerank")),
              HasSubstr("<Query>: {query}\n<Document>: {document}<|im_end|>"));
  const GgufTensor *rows = file->tensor("cls.output.weight"), *table = file->tensor("token_embd.weight");
  ASSERT_NE(rows, nullptr);
  ASSERT_EQ(rows->shape, (Shape{2, 32}));
  const size_t row_bytes = rows->data.size() / 2;
  const auto row_of = [&](size_t id) { return table->data.subspan(id * row_bytes, row_bytes); };
  EXPECT_TRUE(std::ranges::equal(rows->data.first(row_bytes), row_of(257)));  // yes
  EXPECT_TRUE(std::ranges::equal(rows->data.last(row_bytes), row_of(258)));   // no
  EXPECT_EQ(file->tensor("output.weight"), nullptr);
}

TEST(Rankers, NeedTheWordsThatTheyAnswer) {
  const Copy copy("qwen3-reranker", "qwen3-reranker");
  Json tokenizer = copy.read("tokenizer.json");
  tokenizer["model"]["vocab"].erase("yes");
  copy.write("tokenizer.json", tokenizer.dump());
  EXPECT_THAT(copy.error(), HasSubstr("\"yes\""));
}

}  // namespace
}  // namespace nanomind
