// SPDX-License-Identifier: Apache-2.0
#include "text/piece_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanomind {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::vector<std::pair<size_t, int32_t>> prefixes(const PieceTrie& trie, std::string_view text) {
  std::vector<std::pair<size_t, int32_t>> found;
  trie.for_each_prefix(text, [&](size_t size, int32_t id) { found.emplace_back(size, id); });
  return found;
}

TEST(PieceTrie, FindsEverySpellingThatATextBeginsWith) {
  const PieceTrie trie({{"abc", 1}, {"b", 2}, {"a", 3}, {"", 4}, {"a", 5}, {"ab\xff", 6}, {"abcd", 7}});
  EXPECT_THAT(prefixes(trie, "abcx"), ElementsAre(Pair(1, 3), Pair(3, 1)));
  EXPECT_THAT(prefixes(trie, "abcd"), ElementsAre(Pair(1, 3), Pair(3, 1), Pair(4, 7)));
  EXPECT_THAT(prefixes(trie, "ab\xff"), ElementsAre(Pair(1, 3), Pair(3, 6)));
  EXPECT_THAT(prefixes(trie, "b"), ElementsAre(Pair(1, 2)));
  EXPECT_THAT(prefixes(trie, "c"), IsEmpty());
  EXPECT_THAT(prefixes(trie, ""), IsEmpty());
  EXPECT_THAT(prefixes(PieceTrie({}), "a"), IsEmpty());
}

}  // namespace
}  // namespace nanomind
