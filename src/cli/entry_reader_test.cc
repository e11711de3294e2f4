// SPDX-License-Identifier: Apache-2.0
#include "cli/entry_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace nanomind {
namespace {

// Feeds lines; "^C" stands for Ctrl-C, and the end is the end of the input.
Line read_from(std::vector<std::string> lines) {
  size_t next = 0;
  const auto entry = read_entry([&](std::string_view) -> Result<Line> {
    if (next == lines.size()) return Line{.kind = Line::Kind::end_of_input, .text = {}};
    const std::string& text = lines[next++];
    if (text == "^C") return Line{.kind = Line::Kind::interrupted_at_start, .text = {}};
    return Line{.kind = Line::Kind::text, .text = text};
  });
  EXPECT_TRUE(entry);
  EXPECT_EQ(next, lines.size()) << "lines were left over";
  return *entry;
}

TEST(EntryReader, OneLineIsAnEntry) { EXPECT_EQ(read_from({"hello"}).text, "hello"); }

TEST(EntryReader, PastedLinesStayTogether) { EXPECT_EQ(read_from({"a\n\nb"}).text, "a\n\nb"); }

TEST(EntryReader, BackslashContinues) { EXPECT_EQ(read_from({"a\\", "b\\", "c"}).text, "a\nb\nc"); }

TEST(EntryReader, BlockKeepsLinesAsTheyAre) {
  EXPECT_EQ(read_from({"\"\"\"", "if x:", "  y\\", "", "\"\"\""}).text, "if x:\n  y\\\n");
  EXPECT_EQ(read_from({"\"\"\"one", "two\"\"\""}).text, "one\ntwo");
  EXPECT_EQ(read_from({"\"\"\"one\"\"\""}).text, "one");
}

TEST(EntryReader, InterruptThrowsTheWholeEntryAway) {
  EXPECT_EQ(read_from({"\"\"\"", "a", "^C"}).kind, Line::Kind::interrupted);
  EXPECT_EQ(read_from({"a\\", "^C"}).kind, Line::Kind::interrupted);
  EXPECT_EQ(read_from({"^C"}).kind, Line::Kind::interrupted_at_start);
}

TEST(EntryReader, EndOfInputEndsTheEntry) {
  EXPECT_EQ(read_from({}).kind, Line::Kind::end_of_input);
  EXPECT_EQ(read_from({"\"\"\"", "a"}).text, "a");
  EXPECT_EQ(read_from({"a\\"}).text, "a\\");
}

TEST(EntryReader, ErrorsPass) {
  const auto entry = read_entry([](std::string_view) -> Result<Line> { return fail(ErrorCode::io, "gone"); });
  ASSERT_FALSE(entry);
  EXPECT_EQ(entry.error().message, "gone");
}

}  // namespace
}  // namespace nanomind
