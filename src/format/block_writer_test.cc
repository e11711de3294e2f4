// SPDX-License-Identifier: Apache-2.0
// Pieces in any order and from several threads become whole blocks, and all bytes are written once.
#include "format/block_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/thread_pool.h"

namespace nanomind {
namespace {

constexpr uint64_t kBlock = BlockWriter::kBlockBytes;

struct File {
  explicit File(uint64_t size) : bytes(size), writes(size / kBlock + 1) {}

  BlockWriter writer() {
    return {bytes.size(), [this](uint64_t offset, std::span<const std::byte> block) -> Result<void> {
              std::ranges::copy(block, bytes.begin() + static_cast<int64_t>(offset));
              ++writes[offset / kBlock];
              sizes.store(std::max<uint64_t>(sizes, block.size()));
              return {};
            }};
  }
  std::vector<std::byte> bytes;
  std::vector<std::atomic<int>> writes;
  std::atomic<uint64_t> sizes = 0;
};

std::vector<std::byte> numbers(uint64_t size) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(BlockWriter, PiecesInAnyOrderFromSeveralThreadsAreTheFile) {
  const std::vector<std::byte> wanted = numbers(5 * kBlock + 12345);
  std::vector<uint64_t> cuts = {0, wanted.size()};
  std::mt19937_64 random(2);
  for (int i = 0; i < 40; ++i) cuts.push_back(random() % wanted.size());
  cuts.insert(cuts.end(), {kBlock, 3 * kBlock, 3 * kBlock});
  std::ranges::sort(cuts);
  std::vector<size_t> order(cuts.size() - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::shuffle(order, random);

  File file(wanted.size());
  BlockWriter writer = file.writer();
  ThreadPool pool(4);
  pool.for_each(static_cast<int64_t>(order.size()), [&](int64_t i) {
    const size_t at = order[static_cast<size_t>(i)];
    EXPECT_TRUE(writer.put(cuts[at], std::span(wanted).subspan(cuts[at], cuts[at + 1] - cuts[at])));
  });
  ASSERT_TRUE(writer.finish());
  EXPECT_EQ(file.bytes, wanted);
  for (const auto& writes : file.writes) EXPECT_EQ(writes, 1);
}

TEST(BlockWriter, WholeBlocksAreWrittenAtOnceAndOthersAtTheEndWithZeros) {
  const std::vector<std::byte> ones(kBlock, std::byte{1});
  File file(3 * kBlock);
  BlockWriter writer = file.writer();
  ASSERT_TRUE(writer.put(kBlock, ones));
  EXPECT_EQ(file.writes[1], 1);
  ASSERT_TRUE(writer.put(5, std::span(ones).first(10)));
  ASSERT_TRUE(writer.put(2 * kBlock + 1, std::span(ones).first(kBlock - 1)));
  EXPECT_EQ(file.writes[0], 0);
  EXPECT_EQ(file.writes[2], 0);
  ASSERT_TRUE(writer.finish());
  EXPECT_EQ(std::ranges::count(file.bytes, std::byte{1}), static_cast<int64_t>(kBlock + 10 + kBlock - 1));
  EXPECT_EQ(file.bytes[2 * kBlock], std::byte{0});
  EXPECT_EQ(file.sizes, kBlock);
}

TEST(BlockWriter, AFullDiskIsAnError) {
  BlockWriter writer(2 * kBlock, [](uint64_t, std::span<const std::byte>) -> Result<void> {
    return fail(ErrorCode::no_space, "full");
  });
  const std::vector<std::byte> bytes(kBlock + 1);
  const auto whole = writer.put(0, bytes);
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, ErrorCode::no_space);
  ASSERT_TRUE(writer.put(kBlock + 1, std::span(bytes).first(9)));
  EXPECT_FALSE(writer.finish());
}

}  // namespace
}  // namespace nanomind
