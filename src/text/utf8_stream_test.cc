// SPDX-License-Identifier: Apache-2.0
// Expected numbers of U+FFFD: the Unicode standard, section 3.9, "U+FFFD substitution of maximal subparts" (table 3-8).
#include "text/utf8_stream.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

constexpr const char* kFffd = "\xef\xbf\xbd";

// Pushes one byte at a time; ends the stream.
std::string byte_by_byte(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  for (const char& byte : bytes) out += stream.push({&byte, 1});
  return out + stream.finish();
}

std::string at_once(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out + stream.finish();
}

std::string fffd(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += kFffd;
  return out;
}

TEST(Utf8Stream, HoldsBackUntilASequenceIsComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xf0"), "a");
  EXPECT_EQ(stream.push("\x9f"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "\U0001f600z");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, AnIncompleteEndBecomesOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xe2"), "");
  EXPECT_EQ(stream.finish(), kFffd);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("b"), "b");
}

TEST(Utf8Stream, InvalidBytesBecomeReplacementsAtOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xff"), kFffd);
  EXPECT_EQ(stream.push("\xe2"), "");
  EXPECT_EQ(stream.push("("), std::string(kFffd) + "(");
}

TEST(Utf8Stream, MaximalSubparts) {
  const struct {
    std::string_view bytes;
    std::string expected;
  } cases[] = {
      {"\xf0\x80\x80\x41", fffd(3) + "A"},
      {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", fffd(8) + "A"},
      {"\xed\xa0\x80\xed\xbf\xbf\x41", fffd(6) + "A"},  // surrogates
      {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", fffd(5) + "A" + fffd(2) + "B"},
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", fffd(4) + "A"},
      {std::string_view("\0a\xc3\xa9", 4), std::string("\0aé", 4)},
      {"\xf0\x9f\x98", fffd(1)},
      {"", ""},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(at_once(bytes), expected);
    EXPECT_EQ(byte_by_byte(bytes), expected);
  }
}

}  // namespace
}  // namespace nanomind
