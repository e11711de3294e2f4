// SPDX-License-Identifier: Apache-2.0
// Grammars of the kinds that are published with llama.cpp (JSON, lists, arithmetic, a small C, chess moves), each with
// texts that it must take and texts that it must refuse at a known place.
#include "text/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_grammar.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

class GbnfTest : public GrammarFixture {
 protected:
  // How much of `text`, byte by byte, the grammar takes; " END" is added when the text may end after all of it.
  std::string taken(std::string_view gbnf, std::string_view text) {
    const auto lark = lark_from_gbnf(gbnf);
    if (!lark) return lark.error().message;
    auto grammar = Grammar::from_lark(*lark, *vocabulary_);
    if (!grammar) return grammar.error().message + "\n" + *lark;
    std::string out;
    std::vector<uint32_t> mask(grammar->mask_words());
    const auto compute = [&] {
      const auto done = grammar->allowed(mask);
      if (!done) out += " ERROR: " + done.error().message;
      return done.has_value();
    };
    const auto allows = [&](TokenId id) { return mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1; };
    for (const char c : text) {
      const TokenId id = byte_token(c);
      if (!compute() || !allows(id)) return out;
      EXPECT_TRUE(grammar->accept(id));
      out += c;
    }
    if (!compute()) return out;
    return out + (allows(*tokenizer_->end_token()) ? " END" : "");
  }
  void expect_takes(std::string_view gbnf, const std::string& text) { EXPECT_EQ(taken(gbnf, text), text + " END"); }
};

constexpr std::string_view kJson = R"GBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
      string ":" ws value
      ("," ws string ":" ws value)*   # more members
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
)GBNF";

TEST_F(GbnfTest, Json) {
  expect_takes(kJson, R"({"a": [1, -2.5e+10, "x\u00e9\n", {"b":null}], "c": true})");
  expect_takes(kJson, "{}");
  EXPECT_EQ(taken(kJson, R"({"a": 01})"), R"({"a": 0)");
  EXPECT_EQ(taken(kJson, R"({"a": "\q"})"), R"({"a": "\)");
  EXPECT_EQ(taken(kJson, "{\"a\":  1}"), "{\"a\": ");
  EXPECT_EQ(taken(kJson, "[1]"), "");
}

TEST_F(GbnfTest, List) {
  constexpr std::string_view kList =
      "root ::= item+\n\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n";
  expect_takes(kList, "- one\n- 서울\n");
  EXPECT_EQ(taken(kList, "- one\n\n"), "- one\n");
  EXPECT_EQ(taken(kList, "- \n"), "- ");
}

TEST_F(GbnfTest, Arithmetic) {
  constexpr std::string_view kArithmetic = R"GBNF(root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*)GBNF";
  expect_takes(kArithmetic, "(x_1+2)*( 3 -y)=12\n");
  expect_takes(kArithmetic, "a = 1\n\nb\t+c= 2\n");
  EXPECT_EQ(taken(kArithmetic, "1++"), "1+");
  EXPECT_EQ(taken(kArithmetic, "(1))"), "(1)");
}

TEST_F(GbnfTest, SmallC) {
  constexpr std::string_view kC = R"GBNF(
root ::= (declaration)*
declaration ::= type name "(" parameter? ")" "{" statement* "}"
type ::= "int" ws | "float" ws
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type name
statement ::=
    ( type name ws "=" ws expression ";" ) |
    ( name ws "=" ws expression ";" ) |
    ( name ws "(" arguments? ")" ";" ) |
    ( "return" ws expression ";" ) |
    ( "while" "(" expression ("<=" | "<" | "==") expression ")" "{" statement* "}" ) |
    ( "/*" ( [^*] | ("*" [^/]) )* "*/" )
expression ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= name | [0-9]+ | "-" factor | name "(" arguments? ")" | "(" ws expression ws ")"
arguments ::= expression ("," ws expression)*
ws ::= ([ \t\n]+)
)GBNF";
  expect_takes(kC, "int f(int n){int x = 1;while(x<=n){x = x*2+g(x, -1);}/* done */return x;}");
  expect_takes(kC, "");
  EXPECT_EQ(taken(kC, "int f(){return;"), "int f(){return");
  EXPECT_EQ(taken(kC, "int f(){int x = 1+;"), "int f(){int x = 1+");
}

TEST_F(GbnfTest, Chess) {
  constexpr std::string_view kChess = R"GBNF(# moves
root    ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move    ::= (pawn | nonpawn | castle) [+#]?
# pieces
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
)GBNF";
  expect_takes(kChess, "1. e4 e5\n2. Nf3 O-O-O+\n");
  expect_takes(kChess, "1. exd8=Q# Rad1\n99. O-O a1\n");
  EXPECT_EQ(taken(kChess, "1. e9"), "1. e");
  EXPECT_EQ(taken(kChess, "1. e4 e5\n100."), "1. e4 e5\n10");
}

// Where the cut into terminals matters: the longest beginning is not always the right one.
TEST_F(GbnfTest, RowsWithoutRecursionAreOneTerminal) {
  constexpr std::string_view kOverlap = "root ::= \"a\" \"bc\" | \"ab\" \"d\" | \"(\" root \")\"";
  expect_takes(kOverlap, "abc");
  expect_takes(kOverlap, "((abd))");
  expect_takes("root ::= [a-z]* \"z\" root?", "abzcz");
  expect_takes("root ::= \"<\" ws (root ws)? \"\\n\" \">\"\nws ::= [ \\n]*", "< <\n>\n\n>");
}

TEST_F(GbnfTest, EveryRepetition) {
  expect_takes("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"{ 1 , 3 }", "aabbbdd");
  EXPECT_EQ(taken("root ::= \"a\"{2}", "aaa"), "aa");
  EXPECT_EQ(taken("root ::= \"a\"{0} \"b\"", "ab"), "");
  expect_takes("root ::= (\"x\" root \"y\")? \"a\"?", "xxayy");
  expect_takes("root ::= \"[\" root{0,2} \"]\"", "[[[]][]]");
}

TEST_F(GbnfTest, AnyCharacterAndEscapes) {
  expect_takes("root ::= . . \"\\U0001F600\\x41\\t\\\\\\\"\"", "\n😀😀A\t\\\"");
  expect_takes("root ::= [\\]\\[a-]+ [^a-y]", "][-az");
  expect_takes("root ::= \"/\" [/]", "//");
}

TEST_F(GbnfTest, LinesGoOnInGroupsAndAfterBars) {
  expect_takes("root ::= (\n \"a\"\n # comment\n \"b\"\n)\n", "ab");
  expect_takes("root ::= \"a\" |\n  \"b\" |\n  other\r\nother ::= \"c\"", "c");
  expect_takes("root ::=\n  \"a\"", "a");
}

TEST_F(GbnfTest, ErrorsGiveTheLine) {
  const auto message = [](std::string_view gbnf) {
    const auto lark = lark_from_gbnf(gbnf);
    return lark ? "none: " + *lark : lark.error().message;
  };
  EXPECT_THAT(message("root ::= \"a\"\n\nb ::= missing\n"), HasSubstr("Line 3: the rule missing is used"));
  EXPECT_THAT(message("a ::= \"a\""), HasSubstr("no rule named root"));
  EXPECT_THAT(message(""), HasSubstr("no rule named root"));
  EXPECT_THAT(message("root ::= \"a\nb\""), HasSubstr("Line 1: a text or a class of characters is not closed"));
  EXPECT_THAT(message("root ::= [a"), HasSubstr("not closed"));
  EXPECT_THAT(message("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("Line 2: the rule root was defined on line 1"));
  EXPECT_THAT(message("root ::= (\n\"a\"\n"), HasSubstr("Line 3: a closing parenthesis"));
  EXPECT_THAT(message("root ::= \"a\" )"), HasSubstr("Line 1: ')' is not expected"));
  EXPECT_THAT(message("root = \"a\""), HasSubstr("::= is missing after root"));
  EXPECT_THAT(message("root ::= \"\\q\""), HasSubstr("no escape \\q"));
  EXPECT_THAT(message("root ::= \"\\x4\""), HasSubstr("2 hexadecimal digits"));
  EXPECT_THAT(message("root ::= \"\\uD800\""), HasSubstr("is no character"));
  EXPECT_THAT(message("root ::= [z-a]"), HasSubstr("backwards"));
  EXPECT_THAT(message("root ::= []"), HasSubstr("empty"));
  EXPECT_THAT(message("root ::= \"a\"{3,1}"), HasSubstr("fewer"));
  EXPECT_THAT(message("root ::= \"a\"{999999999999}"), HasSubstr("repetitions"));
  EXPECT_THAT(message("root ::= <think>"), HasSubstr("tokens"));
  EXPECT_THAT(message("root ::= \"\xff\""), HasSubstr("not UTF-8"));
}

// They end in an error, not in a crash.
TEST_F(GbnfTest, Tool03HostileGrammarsAreErrors) {
  EXPECT_FALSE(lark_from_gbnf("root ::= " + std::string(60'000, '(') + "\"a\"" + std::string(60'000, ')')));
  EXPECT_FALSE(lark_from_gbnf("root ::= \"a\"" + std::string(60'000, '*')));
  EXPECT_FALSE(lark_from_gbnf(std::string(2 << 20, ' ')));
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 40; ++i)
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  const auto lark = lark_from_gbnf(doubling + "r40 ::= \"a\"\n");
  ASSERT_TRUE(lark);
  EXPECT_LT(lark->size(), 10'000U);
  (void)Grammar::from_lark(*lark, *vocabulary_);  // accepted or refused, but soon
  (void)taken("root ::= root \"a\" | root", "a");
  (void)taken("root ::= \"a\" root", "aaa");
}

}  // namespace
}  // namespace nanomind
