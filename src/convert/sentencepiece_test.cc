// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a SentencePiece model, converted from each set of files that publishers have, makes of texts what
// the sentencepiece package makes of them (tests/data/sentencepiece, written by tools/golden/tiny_sentencepiece.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "convert/test_folder.h"
#include "convert/vocabulary_files.h"
#include "format/gguf_writer.h"
#include "text/tokenizer.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kFiles = "tests/data/sentencepiece";
constexpr int64_t kRows = 424;  // of the embedding, more than there are pieces
constexpr const char* kSettings = R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true})";

Json read(const fs::path& path) { return Json::parse(std::ifstream(path)); }

class SentencePieceFiles : public testing::Test {
 protected:
  void SetUp() override { folder_.write("tokenizer_config.json", kSettings); }

  void copy(const char* name) const { fs::copy_file(kFiles / name, folder_.path() / name); }

  Result<void> convert(int64_t rows, GgufMetadata& metadata) const {
    const Checkpoint checkpoint{.folder = folder_.path(),
                                .name = "tiny",
                                .whole = Config(Json::object(), "config.json"),
                                .config = Config(Json::object(), "config.json"),
                                .model_type = "llama",
                                .weights = {}};
    return add_vocabulary(checkpoint, rows, metadata);
  }

  std::unique_ptr<Tokenizer> tokenizer() const {
    GgufMetadata metadata;
    const auto added = convert(kRows, metadata);
    EXPECT_TRUE(added) << added.error().message;
    const fs::path path = folder_.path() / "out.gguf";
    auto writer = GgufWriter::create(path, metadata, {});
    EXPECT_TRUE(writer && writer->finish());
    const auto file = GgufFile::open(path);
    EXPECT_TRUE(file) << file.error().message;
    return std::move(*make_tokenizer(*file));
  }

  void expect_reference_ids() const {
    const auto made = tokenizer();
    EXPECT_EQ(made->vocabulary_size(), kRows);
    EXPECT_TRUE(made->adds_beginning());
    for (const Json& item : read(kFiles / "ids.json")) {
      const auto text = item["text"].get<std::string>();
      EXPECT_EQ(made->encode(text, ControlTokens::as_text, Beginning::omit), item["ids"].get<std::vector<TokenId>>())
          << '"' << text << '"';
    }
  }

  TestFolder folder_;
};

TEST_F(SentencePieceFiles, BothFiles) {
  copy("tokenizer.model");
  copy("tokenizer.json");
  expect_reference_ids();
}

TEST_F(SentencePieceFiles, TokenizerJsonAlone) {
  copy("tokenizer.json");
  expect_reference_ids();
}

TEST_F(SentencePieceFiles, TokenizerJsonInItsOlderForms) {
  Json json = read(kFiles / "tokenizer.json");
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", true}};
  folder_.write("tokenizer.json", json.dump());
  expect_reference_ids();

  json["pre_tokenizer"] = nullptr;
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {Json{{"type", "Prepend"}, {"prepend", "▁"}}, replace}}};
  folder_.write("tokenizer.json", json.dump());
  expect_reference_ids();
}

TEST_F(SentencePieceFiles, NoSpaceIsPutWhereTheTokenizerPutsNone) {
  Json json = read(kFiles / "tokenizer.json");
  for (const Json& none : {Json{{"type", "Metaspace"}, {"prepend_scheme", "never"}},
                           Json{{"type", "Metaspace"}, {"add_prefix_space", false}}, Json()}) {
    json["pre_tokenizer"] = none;
    folder_.write("tokenizer.json", json.dump());
    const auto made = tokenizer();
    EXPECT_EQ(made->bytes(made->encode("the", ControlTokens::as_text, Beginning::omit).front()).front(), 't') << none;
  }
}

TEST_F(SentencePieceFiles, TokenizerModelAlone) {
  copy("tokenizer.model");
  expect_reference_ids();
}

TEST_F(SentencePieceFiles, TokenizerModelWithAddedTokens) {
  copy("tokenizer.model");
  folder_.write("added_tokens.json", R"({"<extra>": 421, "<|end|>": 420})");
  folder_.write("tokenizer_config.json", R"({"bos_token": "<s>", "add_bos_token": true, "added_tokens_decoder": {
      "1": {"content": "<s>", "special": true}, "422": {"content": "<stop>", "special": true}}})");
  expect_reference_ids();
  const auto made = tokenizer();
  EXPECT_EQ(made->encode("<extra>", ControlTokens::as_text, Beginning::omit), std::vector<TokenId>{421});
  EXPECT_EQ(made->encode("<stop>", ControlTokens::recognise, Beginning::omit), std::vector<TokenId>{422});
  EXPECT_EQ(made->encode("<|end|>", ControlTokens::recognise, Beginning::omit), std::vector<TokenId>{420});
  EXPECT_GT(made->encode("<stop>", ControlTokens::as_text, Beginning::omit).size(), 1U);
}

TEST_F(SentencePieceFiles, WhatDoesNotFitIsRefused) {
  GgufMetadata metadata;
  EXPECT_THAT(convert(kRows, metadata).error().message, HasSubstr("tokenizer.json"));
  copy("tokenizer.model");
  EXPECT_THAT(convert(100, metadata).error().message, HasSubstr("has 420 tokens, but the model's embedding has 100"));
  folder_.write("added_tokens.json", R"({"<extra>": 1000})");
  EXPECT_THAT(convert(kRows, metadata).error().message, HasSubstr("has the id 1000"));
  folder_.write("added_tokens.json", R"({"<extra>": "x"})");
  EXPECT_THAT(convert(kRows, metadata).error().message, HasSubstr("has the id -1"));
}

}  // namespace
}  // namespace nanomind
