// SPDX-License-Identifier: Apache-2.0
#include "cli/console.h"

#include <gtest/gtest.h>

#include "cli/output.h"

namespace nanomind {
namespace {

TEST(ProgressLine, SaysShareAmountsRateAndTimeLeft) {
  EXPECT_EQ(progress_line("pulling", 250000000, 500000000, 10000000, 200),
            "pulling  50 % [############            ] 250 MB of 500 MB, 10.0 MB/s, 25 s left");
}

TEST(ProgressLine, NeedsNoTotalAndNoRate) {
  EXPECT_EQ(progress_line("pulling", 1000000, 0, 0, 200), "pulling 1.00 MB");
  EXPECT_EQ(progress_line("waiting", 0, 0, 0, 200), "waiting");
}

TEST(ProgressLine, NeverExceedsTheWidthOrTheTotal) {
  EXPECT_EQ(progress_line("pulling", 1, 2, 3, 7), "pulling");
  EXPECT_NE(progress_line("x", 3, 2, 0, 200).find("100 %"), std::string::npos);
}

TEST(TerminalSafe, DropsWhatCouldDriveATerminal) {
  EXPECT_EQ(terminal_safe("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(terminal_safe("\033[2Jx\r\a\x7f"), "[2Jx");
  EXPECT_EQ(terminal_safe("caf\xC3\xA9 \xC2\x9B"
                          "1m \xC2\xA0"),
            "caf\xC3\xA9 1m \xC2\xA0");
}

}  // namespace
}  // namespace nanomind
