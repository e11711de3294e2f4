// SPDX-License-Identifier: Apache-2.0
// The work of tiles beside sums by hand from the sizes that tools/golden gives the tiny models.
#include "runtime/vision_work.h"

#include <gtest/gtest.h>

#include <string>

namespace nanomind {
namespace {

// A tile of `side` patches each way.
TileWork work(const std::string& name, int64_t side) {
  const auto file = GgufFile::open("tests/data/vision/mmproj-tiny-" + name + ".gguf");
  const auto model = build_vision(*file);
  EXPECT_TRUE(model) << model.error().message;
  return work_of(*model, model->layout({.rows = side, .columns = side}));
}

// Per row: four square matrices of the attention, and two of the feed-forward.
uint64_t block(uint64_t width, uint64_t feed_forward) { return 4 * width * width + 2 * width * feed_forward; }

TEST(VisionWork, OfATowerAndOneProductOfJoinedPatches) {
  const TileWork found = work("idefics3", 8);
  EXPECT_EQ(found.products, 64 * (3 * 4 * 4 * 48 + 3 * block(48, 96)) + 16 * (4 * 48) * 48);
  EXPECT_EQ(found.attention_products, uint64_t{3} * 2 * 64 * 64 * 48);
}

TEST(VisionWork, WindowsSeeThemselvesOnlyAndLeaveFewerRows) {
  const TileWork found = work("minicpmv4_6", 8);
  const uint64_t two_blocks = 2 * block(32, 64), merger = 4 * 32 * 32;
  const uint64_t patches = 64 * (3 * 4 * 4 * 32 + two_blocks + merger);
  const uint64_t windows = 16 * (128 * 256 + 256 * 32 + two_blocks), projector = 4 * (128 * 128 + 128 * 64);
  EXPECT_EQ(found.products, patches + windows + projector);
  EXPECT_EQ(found.attention_products, uint64_t{2} * 32 * (2 * 64 * 64 + 16 * 4 * 4 + 2 * 16 * 16));
}

}  // namespace
}  // namespace nanomind
