// SPDX-License-Identifier: Apache-2.0
// Every text is given in pieces of every size: the result must be the same as of the whole.
#include "runtime/stop_strings.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << '"' << outcome.text << '"' << (outcome.stopped ? " stopped" : "");
}

Outcome in_pieces(const std::vector<std::string>& strings, std::string_view text, size_t size) {
  StopStrings stop(strings);
  Outcome outcome;
  for (size_t i = 0; i < text.size() && !stop.stopped(); i += size) outcome.text += stop.push(text.substr(i, size));
  outcome.text += stop.finish();
  outcome.stopped = stop.stopped();
  return outcome;
}

void expect(const std::vector<std::string>& strings, std::string_view text, const Outcome& expected) {
  for (size_t size = 1; size <= text.size(); ++size) {
    EXPECT_EQ(in_pieces(strings, text, size), expected) << "in pieces of " << size;
  }
}

TEST(StopStrings, EndTheTextBeforeThem) {
  expect({"STOP"}, "one STOP two", {"one ", true});
  expect({"\n\n"}, "a\nb\n\nc", {"a\nb", true});
  expect({"x"}, "x", {"", true});
  expect({"zz", "two"}, "one two zz", {"one ", true});
}

TEST(StopStrings, WhatOnlyBeginsLikeOneIsGivenOut) {
  expect({"STOP"}, "a STO and STOOP ST", {"a STO and STOOP ST", false});
  expect({"aab"}, "aaaab!", {"aa", true});
  expect({"aab"}, "aaaa", {"aaaa", false});
  expect({}, "text", {"text", false});
}

TEST(StopStrings, HoldsBackNoMoreThanItMust) {
  StopStrings stop({"STOP"});
  EXPECT_EQ(stop.push("a S"), "a ");
  EXPECT_EQ(stop.push("o S"), "So ");
  EXPECT_EQ(stop.push("TOP b"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, CharactersStayWhole) {
  StopStrings stop({"é!"});
  EXPECT_EQ(stop.push("aé"), "a");
  EXPECT_EQ(stop.push("?"), "é?");
  EXPECT_EQ(stop.push("서울é"), "서울");
  EXPECT_EQ(stop.push("!"), "");
  EXPECT_TRUE(stop.stopped());
}

}  // namespace
}  // namespace nanomind
