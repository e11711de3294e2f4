// SPDX-License-Identifier: Apache-2.0
// What a schema allows follows from JSON Schema and JSON themselves; every case is small enough to check by hand.
#include "text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_grammar.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

class GrammarTest : public GrammarFixture {
 protected:
  bool allows(Grammar& grammar, TokenId id) const {
    std::vector<uint32_t> mask(grammar.mask_words());
    const auto done = grammar.allowed(mask);
    EXPECT_TRUE(done) << done.error().message;
    return mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
  }

  // Accepts `text` byte by byte as far as the grammar allows; returns what was accepted.
  std::string advance(Grammar& grammar, std::string_view text) const {
    std::string accepted;
    for (const char c : text) {
      if (!allows(grammar, byte_token(c))) break;
      EXPECT_TRUE(grammar.accept(byte_token(c)));
      accepted += c;
    }
    return accepted;
  }

  Grammar schema(std::string_view source) const {
    auto grammar = Grammar::from_json_schema(source, *vocabulary_);
    EXPECT_TRUE(grammar) << grammar.error().message;
    return *std::move(grammar);
  }
};

constexpr std::string_view kPerson =
    R"({"type":"object","properties":{"age":{"type":"integer"},"ok":{"type":"boolean"}},"required":["age","ok"],)"
    R"("additionalProperties":false})";

TEST_F(GrammarTest, SchemaAllowsWhatFitsAndForbidsWhatDoesNot) {
  Grammar grammar = schema(kPerson);
  EXPECT_EQ(advance(grammar, R"({"age": 3x)"), R"({"age": 3)");
  EXPECT_FALSE(grammar.finished());
  EXPECT_EQ(advance(grammar, R"(1, "ok": tru)"), R"(1, "ok": tru)");
  EXPECT_FALSE(allows(grammar, *tokenizer_->end_token()));
  EXPECT_EQ(advance(grammar, "e}"), "e}");
  EXPECT_TRUE(grammar.finished());
  EXPECT_TRUE(allows(grammar, *tokenizer_->end_token()));
  EXPECT_FALSE(allows(grammar, byte_token(' ')));
  EXPECT_FALSE(allows(grammar, byte_token('\n')));
}

constexpr std::string_view kTree =
    R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},)"
    R"("c":{"type":"array","items":{"$ref":"#/$defs/node"},"maxItems":2}},"required":["v","c"],)"
    R"("additionalProperties":false}}})";

TEST_F(GrammarTest, ASchemaMayReferToItself) {
  const std::string_view tree = R"({"v":1,"c":[{"v":2,"c":[]},{"v":3,"c":[{"v":4,"c":[]}]}]})";
  Grammar grammar = schema(kTree);
  EXPECT_EQ(advance(grammar, tree), tree);
  EXPECT_TRUE(grammar.finished());
  // The same rules hold on every level: keys, types, the number of children, and every bracket that was opened.
  const std::pair<std::string_view, std::string_view> refused[] = {
      {R"({"v":1,"c":[{"v":2,"c":[{"x)", R"({"v":1,"c":[{"v":2,"c":[{")"},
      {R"({"v":1,"c":[{"v":2,"c":7)", R"({"v":1,"c":[{"v":2,"c":)"},
      {R"({"v":1,"c":[{"v":"a)", R"({"v":1,"c":[{"v":)"},
      {R"({"v":1,"c":[{"v":2}})", R"({"v":1,"c":[{"v":2)"},
      {R"({"v":1,"c":[{"v":2,"c":[]},{"v":3,"c":[]},)", R"({"v":1,"c":[{"v":2,"c":[]},{"v":3,"c":[]})"},
      {R"({"v":1,"c":[{"v":2,"c":[]}}})", R"({"v":1,"c":[{"v":2,"c":[]})"},
  };
  for (const auto& [text, accepted] : refused) {
    Grammar fresh = schema(kTree);
    EXPECT_EQ(advance(fresh, text), accepted);
    EXPECT_FALSE(allows(fresh, *tokenizer_->end_token())) << text;
  }
}

TEST_F(GrammarTest, SchemasMayReferToEachOtherAndToTheWhole) {
  Grammar list = schema(R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},)"
                        R"("required":["next"],"additionalProperties":false})");
  EXPECT_EQ(advance(list, R"({"next":{"next":{"next":null}}})"), R"({"next":{"next":{"next":null}}})");
  EXPECT_TRUE(list.finished());
  Grammar turns =
      schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/b"}},)"
             R"("b":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"additionalProperties":false}}})");
  EXPECT_EQ(advance(turns, R"([{"a":[{}]},{"a":[[)"), R"([{"a":[{}]},{"a":[)");
}

// Nothing but the number of tokens bounds such an answer: a level more costs no more than the one before.
TEST_F(GrammarTest, RecursionHasNoDepthOfItsOwn) {
  Grammar grammar = schema(R"({"type":"array","items":{"$ref":"#"}})");
  const std::string open(2000, '['), close(2000, ']');
  EXPECT_EQ(advance(grammar, open), open);
  EXPECT_EQ(advance(grammar, close + "]"), close);
  EXPECT_TRUE(grammar.finished());
}

TEST_F(GrammarTest, AForbiddenTokenIsAnError) {
  Grammar grammar = schema(kPerson);
  EXPECT_FALSE(grammar.accept(byte_token('x')));
  EXPECT_FALSE(grammar.accept(byte_token('{')));
  EXPECT_FALSE(schema(kPerson).accept(-1));
  EXPECT_FALSE(schema(kPerson).accept(1'000'000));
}

TEST_F(GrammarTest, ControlTokensAreNotText) {
  Grammar grammar = schema(R"({"type":"string"})");
  EXPECT_EQ(advance(grammar, "\"a"), "\"a");
  for (TokenId id = 0; id < tokenizer_->vocabulary_size(); ++id) {
    if (tokenizer_->piece(id) == "<|im_start|>" || tokenizer_->piece(id) == "<|im_end|>") {
      EXPECT_FALSE(allows(grammar, id)) << tokenizer_->piece(id);
    }
  }
}

// Chooses white space whenever it may: the answer must end all the same.
TEST_F(GrammarTest, Tool04WhiteSpaceEnds) {
  Grammar grammar = schema(kPerson);
  const std::string rest = R"({"age":1,"ok":true})";
  size_t position = 0;
  int steps = 0;
  for (; position < rest.size() && steps < 1000; ++steps) {
    const char next = allows(grammar, byte_token(' ')) ? ' ' : rest[position++];
    ASSERT_TRUE(grammar.accept(byte_token(next)));
  }
  EXPECT_TRUE(grammar.finished());
  EXPECT_LT(steps, 250);  // at most 20 at each of 10 places, and the text itself
}

TEST_F(GrammarTest, NumbersEnd) {
  Grammar grammar = schema(R"({"type":"integer"})");
  const std::string digits(1000, '1');
  const size_t length = advance(grammar, digits).size();
  EXPECT_GE(length, 20u);  // 2^64 has as many
  EXPECT_LT(length, 40u);
  EXPECT_TRUE(allows(grammar, *tokenizer_->end_token()));
}

TEST_F(GrammarTest, RegexAndLark) {
  Grammar regex = *Grammar::from_regex("[0-9]{3}-[a-f]+", *vocabulary_);
  EXPECT_EQ(advance(regex, "123-abg"), "123-ab");
  EXPECT_TRUE(allows(regex, *tokenizer_->end_token()));
  EXPECT_FALSE(regex.finished());
  Grammar lark = *Grammar::from_lark("start: \"yes\" | \"no\" \"!\"*\n", *vocabulary_);
  EXPECT_EQ(advance(lark, "no!!y"), "no!!");
}

TEST_F(GrammarTest, NonsenseIsAnError) {
  EXPECT_THAT(Grammar::from_json_schema("{", *vocabulary_).error().message, HasSubstr("not valid JSON"));
  EXPECT_THAT(Grammar::from_json_schema("[]", *vocabulary_).error().message, HasSubstr("is an object"));
  EXPECT_FALSE(Grammar::from_json_schema(R"({"type":"martian"})", *vocabulary_));
  EXPECT_FALSE(Grammar::from_json_schema("\xff", *vocabulary_));
  EXPECT_FALSE(Grammar::from_regex("[a", *vocabulary_));
  EXPECT_FALSE(Grammar::from_lark("start: missing", *vocabulary_));
  EXPECT_TRUE(Grammar::from_json_schema("true", *vocabulary_));
}

// What a schema of one of several kinds usually looks like.
TEST_F(GrammarTest, OneOfIsAnyOf) {
  constexpr std::string_view kUnion =
      R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"}},"required":["kind"]},)"
      R"({"$ref":"#/$defs/b"},{"type":"integer"},{"type":"number"}],)"
      R"("$defs":{"b":{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]}}})";
  for (const std::string_view text : {R"({"kind":"a"})", R"({"kind":"b"})", "7", "7.5"}) {
    Grammar grammar = schema(kUnion);
    EXPECT_EQ(advance(grammar, text), text);
    EXPECT_TRUE(allows(grammar, *tokenizer_->end_token()));
  }
  Grammar grammar = schema(kUnion);
  EXPECT_EQ(advance(grammar, R"({"kind":"c"})"), R"({"kind":")");
}

TEST_F(GrammarTest, SchemasComeInEnvelopes) {
  const std::string person(kPerson);
  for (const std::string& source : {R"({"name":"p","schema":)" + person + R"(,"strict":true})",
                                    R"({"type":"json_schema","json_schema":{"name":"p","schema":)" + person + "}}",
                                    R"({"type":"json_schema","name":"p","strict":true,"schema":)" + person + "}",
                                    R"({"type":"json_object","schema":)" + person + "}"}) {
    Grammar grammar = schema(source);
    EXPECT_EQ(advance(grammar, R"({"age": 3, "no)"), R"({"age": 3, ")") << source;
  }
  // Properties of that name are properties, and other keys are a schema's.
  Grammar object = schema(R"({"type":"object","properties":{"schema":{"const":1}},"required":["schema"]})");
  EXPECT_EQ(advance(object, R"({"schema": 12)"), R"({"schema": 1)");
  Grammar list = schema(R"({"type":"array","schema":{"type":"integer"}})");
  EXPECT_EQ(advance(list, R"(["a"])"), R"(["a"])");
}

TEST_F(GrammarTest, RefusalsNameTheKeyword) {
  const auto refusal = [&](std::string_view source) {
    const auto grammar = Grammar::from_json_schema(source, *vocabulary_);
    return grammar ? std::string("accepted") : grammar.error().message;
  };
  Grammar circle = schema(R"({"$ref":"#"})");
  std::vector<uint32_t> mask(circle.mask_words());
  EXPECT_THAT(circle.allowed(mask).error().message, HasSubstr("refers to itself"));
  EXPECT_THAT(refusal(R"({"type":"string","pattern":"("})"), HasSubstr("unclosed group"));
  EXPECT_THAT(refusal(R"({"type":"array","items":{"not":{"type":"null"}},"minItems":1})"),
              HasSubstr("has \"not\", which"));
  EXPECT_THAT(refusal(R"({"type":"string","format":"colour"})"), HasSubstr(R"("format": "colour")"));
  EXPECT_THAT(refusal(R"({"$ref":"person.json"})"), HasSubstr("$defs"));
  EXPECT_THAT(refusal(R"({"type":"martian"})"), HasSubstr("martian"));
  EXPECT_THAT(refusal(R"({"type":"string","minLength":3,"maxLength":2})"), HasSubstr("minLength (3)"));
  EXPECT_THAT(refusal("false"), HasSubstr("no answer meets"));
  EXPECT_THAT(refusal("null"), HasSubstr("is an object"));
}

TEST_F(GrammarTest, Tool03HostileGrammarsAreErrors) {
  std::string schema_source;
  for (int i = 0; i < 10'000; ++i) schema_source += R"({"type":"array","items":)";
  schema_source += "{}" + std::string(10'000, '}');
  EXPECT_THAT(Grammar::from_json_schema(schema_source, *vocabulary_).error().message, HasSubstr("levels deep"));
  const std::string parentheses = std::string(60'000, '(') + "a" + std::string(60'000, ')');
  EXPECT_THAT(Grammar::from_regex(parentheses, *vocabulary_).error().message, HasSubstr("levels deep"));
  EXPECT_FALSE(Grammar::from_lark("start: " + parentheses, *vocabulary_));
  EXPECT_FALSE(Grammar::from_json_schema(std::string(1'000'000, '['), *vocabulary_));
  EXPECT_FALSE(Grammar::from_regex(std::string(2'000'000, 'a'), *vocabulary_));
}

// Large or ambiguous, but not wrong: whether they are accepted or refused, neither may take long.
TEST_F(GrammarTest, AwkwardGrammarsDoNotHang) {
  std::string chain = "start: r0\n";
  for (int i = 0; i < 20'000; ++i) chain += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + "\n";
  chain += "r20000: \"a\"\n";
  std::vector<Result<Grammar>> grammars;
  grammars.push_back(Grammar::from_lark(chain, *vocabulary_));
  grammars.push_back(Grammar::from_regex("((a{1,1000}){1,1000}){1,1000}", *vocabulary_));
  grammars.push_back(Grammar::from_json_schema(R"({"$ref":"#"})", *vocabulary_));
  for (Result<Grammar>& grammar : grammars) {
    if (!grammar) continue;
    std::vector<uint32_t> mask(grammar->mask_words());
    if (!grammar->allowed(mask)) continue;
    const TokenId other = byte_token('!');
    EXPECT_FALSE(mask[static_cast<size_t>(other) / 32] >> (other % 32) & 1);
  }
  Grammar nested = *Grammar::from_regex("(a+)+", *vocabulary_);
  EXPECT_EQ(advance(nested, std::string(200, 'a') + "b"), std::string(200, 'a'));
}

TEST_F(GrammarTest, OutlivesTheVocabulary) {
  Grammar grammar = schema(R"({"enum":["a"]})");
  vocabulary_.reset();
  EXPECT_EQ(advance(grammar, "\"a\""), "\"a\"");
  EXPECT_TRUE(grammar.finished());
}

}  // namespace
}  // namespace nanomind
