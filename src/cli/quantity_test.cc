// SPDX-License-Identifier: Apache-2.0
#include "cli/quantity.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

TEST(Quantity, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("2G"), 2147483648u);
  EXPECT_EQ(parse_bytes("2GiB"), 2147483648u);
  EXPECT_EQ(parse_bytes("2 gb"), 2000000000u);
  EXPECT_EQ(parse_bytes("1.5k"), 1536u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
}

TEST(Quantity, RefusesWhatIsNoAmount) {
  for (const char* text : {"", "G", "-1G", "2X", "2Gx", "0", "1e3G", "99999999T"}) {
    const auto bytes = parse_bytes(text);
    ASSERT_FALSE(bytes) << text;
    EXPECT_EQ(bytes.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(bytes.error().message.find("like 2G"), std::string::npos);
  }
}

TEST(Quantity, ReadsTimes) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse_duration("5s"), milliseconds(5000));
  EXPECT_EQ(parse_duration("0.5"), milliseconds(500));
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("2 min"), milliseconds(120'000));
  EXPECT_EQ(parse_duration("2m"), milliseconds(120'000));
  EXPECT_EQ(parse_duration("1h"), milliseconds(3'600'000));
  EXPECT_EQ(parse_duration("0s"), milliseconds(0));
  for (const char* text : {"", "s", "-1s", "5x", "5 s s", "1e3s", "721h"}) {
    const auto duration = parse_duration(text);
    ASSERT_FALSE(duration) << text;
    EXPECT_NE(duration.error().message.find("like 5s"), std::string::npos);
  }
}

TEST(Quantity, FormatsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(98362432), "98.4 MB");
  EXPECT_EQ(format_bytes(491400064), "491 MB");
  EXPECT_EQ(format_bytes(1117320768), "1.12 GB");
  EXPECT_EQ(format_bytes(999600000), "1.00 GB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
}

TEST(Quantity, FormatsDurations) {
  EXPECT_EQ(format_seconds(0.2), "1 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7500), "2 h 5 min");
}

TEST(Quantity, ReadsNumbersInRangeOnly) {
  EXPECT_EQ(parse_integer("-1", -1, 5), -1);
  EXPECT_FALSE(parse_integer("6", -1, 5));
  EXPECT_FALSE(parse_integer("3 ", -1, 5));
  EXPECT_FALSE(parse_integer("99999999999999999999", 0, INT64_MAX));
  EXPECT_EQ(parse_number("0.25"), 0.25);
  EXPECT_FALSE(parse_number("nan"));
  EXPECT_FALSE(parse_number("1,5"));
}

}  // namespace
}  // namespace nanomind
