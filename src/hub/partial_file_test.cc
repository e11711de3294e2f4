// SPDX-License-Identifier: Apache-2.0
#include "hub/partial_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "hub/test_support.h"

namespace nanomind {
namespace {

using test::read_file;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(PartialFile, GoesOnWhereItStoppedAndHashesAll) {
  const test::TemporaryFolder folder;
  {
    auto file = PartialFile::open(folder / "m.gguf", "url 1");
    ASSERT_TRUE(file && file->restart("\"v1\"") && file->append(bytes("Hello, ")));
  }
  auto file = PartialFile::open(folder / "m.gguf", "url 1");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 7u);
  EXPECT_EQ(file->etag(), "\"v1\"");
  ASSERT_TRUE(file->append(bytes("world")));
  EXPECT_EQ(file->sha256().value(), test::sha256_of("Hello, world"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf"));
  ASSERT_TRUE(file->publish());
  EXPECT_EQ(read_file(folder / "m.gguf"), "Hello, world");
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf.partial"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf.partial.json"));
}

TEST(PartialFile, BytesOfAnotherSourceStayUntilRestart) {
  const test::TemporaryFolder folder;
  {
    auto file = PartialFile::open(folder / "m.gguf", "url 1");
    ASSERT_TRUE(file && file->restart("e") && file->append(bytes("first")));
  }
  auto other = PartialFile::open(folder / "m.gguf", "url 2");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->size(), 0u);
  EXPECT_EQ(read_file(folder / "m.gguf.partial"), "first");
  ASSERT_TRUE(other->restart("") && other->append(bytes("2")));
  EXPECT_EQ(read_file(folder / "m.gguf.partial"), "2");
}

TEST(PartialFile, OnlyWholePartsSurvive) {
  const test::TemporaryFolder folder;
  {
    auto file = PartialFile::open(folder / "m.gguf", "packages");
    ASSERT_TRUE(file && file->restart("") && file->complete_part(0));
    ASSERT_TRUE(file->append(bytes("part1")) && file->complete_part(1) && file->append(bytes("par")));
  }
  auto file = PartialFile::open(folder / "m.gguf", "packages");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->parts_done(), 1u);
  EXPECT_EQ(file->size(), 5u);
  ASSERT_TRUE(file->append(bytes("+2")));
  EXPECT_EQ(read_file(folder / "m.gguf.partial"), "part1+2");
  EXPECT_EQ(file->sha256().value(), test::sha256_of("part1+2"));
}

TEST(PartialFile, DamagedStateMeansFromTheBeginning) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "m.gguf.partial", "half");
  for (const std::string_view state :
       {"", "{", "[]", R"({"source":1})", R"({"source":"s","part_bytes":99,"parts_done":1})"}) {
    test::write_file(folder / "m.gguf.partial.json", state);
    const auto file = PartialFile::open(folder / "m.gguf", "s");
    ASSERT_TRUE(file);
    EXPECT_EQ(file->size(), 0u) << state;
    EXPECT_EQ(file->parts_done(), 0u) << state;
  }
}

TEST(PartialFile, Load10AWriteThatDoesNotFitIsToldAndNothingIsLost) {
  // The limit on file sizes stands in for a file system that is full at 1000 bytes.
  const test::TemporaryFolder folder;
  auto file = PartialFile::open(folder / "m.gguf", "s");
  ASSERT_TRUE(file && file->restart(""));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = file->append(bytes(std::string(1500, 'x')));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::no_space);
  EXPECT_EQ(file->size(), 1000u);
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf"));
  ASSERT_TRUE(file->append(bytes(std::string(500, 'x'))));
  EXPECT_EQ(file->sha256().value(), test::sha256_of(std::string(1500, 'x')));
}

}  // namespace
}  // namespace nanomind
