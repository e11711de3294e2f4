// SPDX-License-Identifier: Apache-2.0
// Which pictures are known, and what is kept of them.
#include "runtime/pictures.h"

#include <gtest/gtest.h>

#include <array>

namespace nanomind {
namespace {

PictureKey source(uint8_t i) { return {.file = {i}, .detail = {}}; }

std::shared_ptr<const CutPicture> cut() {
  return std::make_shared<const CutPicture>(
      CutPicture{.tiles = {},
                 .places = {},
                 .parts = {{.text = "<", .tile = -1, .blended = {}}, {.text = {}, .tile = 0, .blended = {}}}});
}

TEST(Pictures, RowsUsedLastAreKeptUnderTokensOfTheirOwn) {
  constexpr std::array<PatchGrid, 2> kCounts{PatchGrid{}, PatchGrid{.rows = 1, .columns = 3}};
  Pictures pictures(4, {.row_bytes = 3 * 4 * sizeof(float) * 2});  // two pictures of three rows
  const auto add = [&](uint8_t i) { return pictures.add(source(i), {}, {}, cut(), kCounts).prompt[1].rows; };
  const auto keep = [&](TokenId first, float value) { pictures.keep(first, 0, std::vector<float>(12, value)); };
  const auto one = add(1), two = add(2);
  EXPECT_EQ(one, (std::vector<TokenId>{-1, -2, -3}));
  EXPECT_EQ(two, (std::vector<TokenId>{-4, -5, -6}));
  keep(-1, 1);
  keep(-4, 2);
  EXPECT_EQ(pictures.of(-5), pictures.find(source(2)));
  EXPECT_EQ(pictures.of(-7), nullptr);
  EXPECT_FALSE(pictures.rows(*pictures.find(source(1))).empty());  // a use
  const auto three = add(3);
  pictures.keep(-7, 0, std::vector<float>(8, 3));
  EXPECT_FALSE(pictures.has_rows(*pictures.find(source(3))));  // one is missing
  pictures.keep(-7, 2, std::vector<float>(4, 3));
  EXPECT_TRUE(pictures.has_rows(*pictures.find(source(3))));
  EXPECT_FALSE(pictures.has_rows(*pictures.find(source(2))));
  EXPECT_EQ(*pictures.row(-3), 1);
  EXPECT_EQ(*pictures.row(-9), 3);
  EXPECT_EQ(pictures.row(-4), nullptr);
  EXPECT_EQ(pictures.row(-10), nullptr);
  // It has the tokens that it had, so that prefixes with it are still good.
  EXPECT_EQ(pictures.show(source(2), {})->prompt[1].rows, two);
}

TEST(Pictures, FilesOfThoseShownLastAreKept) {
  constexpr std::array<PatchGrid, 2> kCounts{PatchGrid{}, PatchGrid{.rows = 1, .columns = 3}};
  Pictures pictures(4, {.file_bytes = 20});
  const std::vector<std::byte> small(8), large(21);
  const auto kept = [&](uint8_t i) { return pictures.find(source(i))->file.size(); };
  for (const uint8_t i : {1, 2}) pictures.add(source(i), small, {}, cut(), kCounts);
  pictures.show(source(1), small);
  pictures.add(source(3), small, {}, cut(), kCounts);
  EXPECT_EQ(kept(1), 8U);
  EXPECT_EQ(kept(2), 0U);
  EXPECT_EQ(kept(3), 8U);
  pictures.add(source(4), large, {}, cut(), kCounts);
  EXPECT_EQ(kept(1) + kept(2) + kept(3), 0U);
  EXPECT_EQ(kept(4), 21U);
  pictures.show(source(2), small);
  EXPECT_EQ(kept(2), 8U);
  EXPECT_EQ(kept(4), 0U);
}

TEST(Pictures, ThoseShownLastAreKnown) {
  constexpr std::array<PatchGrid, 2> kCounts{PatchGrid{}, PatchGrid{.rows = 1, .columns = 3}};
  Pictures pictures(4, {.count = 3});
  const auto add = [&](uint8_t i) { return pictures.add(source(i), {}, {}, cut(), kCounts).first; };
  for (const uint8_t i : {1, 2, 3}) pictures.keep(add(i), 0, std::vector<float>(12, i));
  EXPECT_EQ(pictures.show(source(1), {})->first, -1);
  EXPECT_EQ(add(4), -10);
  EXPECT_EQ(pictures.find(source(2)), nullptr);
  EXPECT_EQ(pictures.of(-5), nullptr);
  EXPECT_EQ(pictures.row(-5), nullptr);
  EXPECT_EQ(pictures.show(source(2), {}), nullptr);
  EXPECT_EQ(*pictures.row(-3), 1);
  EXPECT_EQ(*pictures.row(-7), 3);
  // What comes late for it is not kept.
  pictures.keep(-4, 0, std::vector<float>(12, 2));
  EXPECT_EQ(pictures.row(-5), nullptr);
  EXPECT_EQ(add(2), -13);  // for the third, as the first was shown after it
  EXPECT_EQ(pictures.find(source(3)), nullptr);
}

}  // namespace
}  // namespace nanomind
