// SPDX-License-Identifier: Apache-2.0
// The table is nmt_nfkc as the sentencepiece library compiles it; expected replacements are those of Unicode's NFKC.
#include "text/charsmap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace nanomind {
namespace {

std::string read_table() {
  std::ifstream file("tests/data/tokenizer/small-unigram.charsmap", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replace_all(const Charsmap& map, std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [size, replacement] = map.replace_first(text);
    out += replacement;
    text.remove_prefix(size);
  }
  return out;
}

TEST(Charsmap, ReplacesTheLongestMatch) {
  const std::string table = read_table();
  const Charsmap map = *Charsmap::create(std::as_bytes(std::span(table)));
  EXPECT_EQ(replace_all(map, "ﬁｘ①㌔"), "fix1キロ");
  EXPECT_EQ(replace_all(map, "e\u0301\u0302 \t"), "é\u0302  ");
  EXPECT_EQ(replace_all(map, "plain ±"), "plain ±");
  EXPECT_EQ(replace_all(map, "a\xff\xe2\x82"), "a\ufffd\ufffd\ufffd");
}

TEST(Charsmap, EmptyReplacesNothing) { EXPECT_EQ(replace_all(Charsmap(), "ﬁ①"), "ﬁ①"); }

TEST(Charsmap, TruncatedTablesAreErrors) {
  const std::string table = read_table();
  for (const size_t size : {size_t{1}, size_t{4}, size_t{100}}) {
    EXPECT_FALSE(Charsmap::create(std::as_bytes(std::span(table)).first(size))) << size;
  }
}

TEST(Charsmap, TablesThatPointAnywhereAreHarmless) {
  std::string table = read_table().substr(0, 4000);
  const uint32_t size = 3000;
  std::memcpy(table.data(), &size, sizeof(size));
  const Charsmap map = *Charsmap::create(std::as_bytes(std::span(table)));
  for (int c = 1; c < 0x3000; c += 7) {
    const std::string text = {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                              static_cast<char>(0x80 | (c & 0x3f))};
    EXPECT_GT(map.replace_first(text).size, 0u);
  }
}

}  // namespace
}  // namespace nanomind
