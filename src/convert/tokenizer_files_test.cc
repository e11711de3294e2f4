// SPDX-License-Identifier: Apache-2.0
// Expected values follow from the formats: tokenizer.json of the tokenizers library, sentencepiece_model.proto.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "convert/pre_tokenizer_names.h"
#include "convert/sentencepiece_model.h"
#include "convert/tokenizer_json.h"

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Config tokenizer(const char* json) { return {*parse_json(json), "tokenizer.json"}; }

// As Qwen2.5 and Llama 3 publish them.
constexpr const char* kQwen2 =
    R"json({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]})json";
constexpr const char* kLlama3 =
    R"json({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})json";
constexpr const char* kSmolLm =
    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})";

TEST(PreTokenizerNames, AreThoseOfThePublishedRules) {
  EXPECT_EQ(recognise_pre_tokenizer(*parse_json(kQwen2), false), "qwen2");
  EXPECT_EQ(recognise_pre_tokenizer(*parse_json(kLlama3), true), "llama-bpe");
  EXPECT_EQ(recognise_pre_tokenizer(*parse_json(kLlama3), false), "smaug-bpe");
  EXPECT_EQ(recognise_pre_tokenizer(*parse_json(kSmolLm), false), "smollm");
}

TEST(PreTokenizerNames, AreNeverGuessed) {
  const auto error_of = [](const std::string& json) {
    const auto result = recognise_pre_tokenizer(*parse_json(json), false);
    return result ? "" : result.error().message;
  };
  std::string nearly = kQwen2;
  nearly.replace(nearly.find("\\\\p{N}|"), 7, "\\\\p{N}{1,2}|");
  EXPECT_THAT(error_of(nearly), HasSubstr("{1,2}"));
  std::string removed = kQwen2;
  removed.replace(removed.find("Isolated"), 8, "MergedWithNext");
  EXPECT_THAT(error_of(removed), HasSubstr("MergedWithNext"));
  EXPECT_THAT(error_of(R"({"type":"ByteLevel","add_prefix_space":true})"), HasSubstr("add_prefix_space"));
  EXPECT_THAT(error_of(R"({"type":"Metaspace"})"), HasSubstr("Metaspace"));
  EXPECT_THAT(error_of("{}"), HasSubstr("not known"));
}

TEST(TokenizerJson, KnowsBothSpellingsOfMerges) {
  const auto merges = read_merges(tokenizer(R"({"model":{"merges":["a b", ["ab", "c"]]}})"));
  ASSERT_TRUE(merges) << merges.error().message;
  EXPECT_THAT(*merges, ElementsAre("a b", "ab c"));
  EXPECT_FALSE(read_merges(tokenizer(R"({"model":{"merges":[["a"]]}})")));
  EXPECT_FALSE(read_merges(tokenizer(R"({"model":{}})")));
}

TEST(TokenizerJson, PlacesAddedTokensByTheirKind) {
  const auto list = read_token_list(tokenizer(R"({"model":{"vocab":{"b":1,"a":0}},"added_tokens":[
      {"id":2,"content":"<s>","special":true},{"id":4,"content":"<tool>","special":false},
      {"id":5,"content":"<|x|>","special":false},{"id":6,"content":"▁▁","special":false}]})"),
                                    10);
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_THAT(list->tokens, ElementsAre("a", "b", "<s>", "[PAD3]", "<tool>", "<|x|>", "  "));
  EXPECT_THAT(list->types, ElementsAre(TokenType::normal, TokenType::normal, TokenType::control, TokenType::unused,
                                       TokenType::user_defined, TokenType::control, TokenType::user_defined));
  EXPECT_FALSE(read_token_list(tokenizer(R"({"model":{"vocab":{"a":-1}}})"), 10));
  EXPECT_FALSE(read_token_list(tokenizer(R"({"model":{"vocab":["a"]}})"), 10));
}

TEST(TokenizerJson, ScoresPiecesByTheirFirstMerge) {
  TokenList list{.tokens = {"<0x0A>", "a", "b", "ab", "aba"}, .types = std::vector(5, TokenType::normal)};
  score_by_merges({"a b", "ab a", "a ba"}, list);
  EXPECT_EQ(list.types[0], TokenType::byte);
  EXPECT_EQ(list.scores[0], 0);
  EXPECT_LT(list.scores[1], -1e8F);
  EXPECT_EQ(list.scores[3], 0);
  EXPECT_EQ(list.scores[4], -1);
}

std::string piece(const std::string& text, float score, char type) {
  std::string body = "\x0a" + std::string(1, static_cast<char>(text.size())) + text + "\x15";
  body.append(reinterpret_cast<const char*>(&score), sizeof score);
  body += "\x18";
  body += type;
  return "\x0a" + std::string(1, static_cast<char>(body.size())) + body;
}

TEST(SentencePieceModel, IsReadFieldByField) {
  // Trainer: model type BPE; normaliser: no space before the text.
  const std::string bytes = piece("<unk>", 0, 2) + piece("▁a", -1.5F, 1) + std::string("\x12\x02\x18\x02", 4) +
                            std::string("\x1a\x02\x18\x00", 4);
  const auto model = read_sentencepiece_model(bytes, "tokenizer.model");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->kind, SentencePieceModel::Kind::bpe);
  EXPECT_FALSE(model->adds_space_prefix);
  EXPECT_THAT(model->pieces.tokens, ElementsAre("<unk>", "▁a"));
  EXPECT_THAT(model->pieces.scores, ElementsAre(0, -1.5F));
  EXPECT_THAT(model->pieces.types, ElementsAre(TokenType::unknown, TokenType::normal));
}

TEST(SentencePieceModel, RefusesOtherBytes) {
  const std::string good = piece("a", 0, 1);
  for (size_t size = 1; size < good.size(); ++size)
    EXPECT_FALSE(read_sentencepiece_model(good.substr(0, size), "x")) << size;
  EXPECT_FALSE(read_sentencepiece_model("", "x"));
  EXPECT_FALSE(read_sentencepiece_model(piece("a", 0, 9), "x"));
  EXPECT_FALSE(read_sentencepiece_model("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "x"));
}

}  // namespace
}  // namespace nanomind
