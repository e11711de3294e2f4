// SPDX-License-Identifier: Apache-2.0
// Scripted answers, each in pieces of every size: the parts must not depend on the pieces.
#include "text/reasoning.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

using Start = ReasoningSplitter::Start;

const ReasoningMarkers kThink{.open = "<think>", .close = "</think>"};

void expect(Start start, std::string_view text, const std::string& reasoning, const std::string& answer) {
  for (size_t size = 1; size <= text.size(); ++size) {
    ReasoningSplitter splitter(kThink, start);
    ReasoningSplitter::Parts all;
    const auto add = [&](const ReasoningSplitter::Parts& parts) {
      all.reasoning += parts.reasoning;
      all.answer += parts.answer;
    };
    for (size_t i = 0; i < text.size(); i += size) add(splitter.push(text.substr(i, size)));
    add(splitter.finish());
    EXPECT_EQ(all.reasoning, reasoning) << "in pieces of " << size;
    EXPECT_EQ(all.answer, answer) << "in pieces of " << size;
  }
}

TEST(Reasoning, Tok06ScriptedAnswers) {
  expect(Start::answer, "<think>\nHm, 2 < 3.\n</think>\n\nYes.", "Hm, 2 < 3.", "Yes.");
  expect(Start::answer, "No thoughts.", "", "No thoughts.");
  expect(Start::answer, "  \n No thoughts.", "", "  \n No thoughts.");
  expect(Start::reasoning, "Hm.\n\nSo.</think>Yes.", "Hm.\n\nSo.", "Yes.");  // the prompt opened it
  expect(Start::reasoning, "<think>Hm.</think>Yes.", "Hm.", "Yes.");         // both did
  expect(Start::reasoning, "Hm, I wonder", "Hm, I wonder", "");              // unclosed
  expect(Start::answer, "<think>Hm </thi", "Hm </thi", "");                  // cut within the marker
  expect(Start::answer, "<think>\n\n</think>\n\nYes.", "", "Yes.");          // empty
  expect(Start::answer, "<think>Hm</think>\n</think>\nYes.", "Hm", "Yes.");  // closed twice
  expect(Start::answer, "Write `<think>` and </think>.", "", "Write `<think>` and </think>.");
  expect(Start::answer, "<think>a</think>In code: <think>b</think>", "a", "In code: <think>b</think>");
  expect(Start::answer, "<think>생각 😀</think>\n네. ", "생각 😀", "네. ");
  expect(Start::answer, "<thin", "", "<thin");
  expect(Start::reasoning, "</think>Yes", "", "Yes");
  expect(Start::reasoning, " \n", "", "");
}

TEST(Reasoning, IsGivenOutAsItComes) {
  ReasoningSplitter splitter(kThink, Start::reasoning);
  EXPECT_EQ(splitter.push("First. ").reasoning, "First.");
  EXPECT_TRUE(splitter.reasoning());
  EXPECT_EQ(splitter.push("Second <").reasoning, " Second");
  EXPECT_EQ(splitter.push("/think>").reasoning, "");
  EXPECT_FALSE(splitter.reasoning());
  EXPECT_EQ(splitter.push("\nDone").answer, "Done");
}

TEST(Reasoning, MarkersComeFromTheTemplate) {
  const auto open = [](std::string_view source) {
    const auto markers = find_reasoning_markers(source);
    return markers ? markers->open : "";
  };
  EXPECT_EQ(open("{% if '</think>' in content %}"), "<think>");
  EXPECT_EQ(open("x [THINK] y"), "[THINK]");
  EXPECT_EQ(open("{{ messages }}"), "");
  EXPECT_TRUE(opens_reasoning(kThink, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_reasoning(kThink, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning(kThink, "  "));
}

}  // namespace
}  // namespace nanomind
