// SPDX-License-Identifier: Apache-2.0
#include "base/resumable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace nanomind {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class ResumableFileTest : public testing::Test {
 protected:
  ResumableFileTest() {
    std::string name = (fs::temp_directory_path() / "resumable_file_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~ResumableFileTest() override { fs::remove_all(folder_); }

  fs::path path(const char* name) const { return folder_ / name; }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  static std::string content(const fs::path& p) {
    std::ifstream in(p, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_;
};

TEST_F(ResumableFileTest, KeepsWhatIsUnfinished) {
  {
    ResumableFile file = ResumableFile::open(path("out")).value();
    ASSERT_TRUE(file.write_at(0, bytes("begun")));
    ASSERT_TRUE(file.sync());
  }
  EXPECT_EQ(content(path("out.partial")), "begun");
  EXPECT_FALSE(fs::exists(path("out")));
  ResumableFile file = ResumableFile::open(path("out")).value();
  std::array<std::byte, 9> read{};
  EXPECT_EQ(file.read_at(2, read).value(), 3U);
  EXPECT_EQ(static_cast<char>(read[0]), 'g');
  ASSERT_TRUE(file.write_at(5, bytes(", ended and more")));
  ASSERT_TRUE(file.truncate(12));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(path("out")), "begun, ended");
  EXPECT_EQ(files(), 1U);
}

TEST_F(ResumableFileTest, RemovesWhatNobodyWants) {
  {
    ResumableFile file = ResumableFile::open(path("out")).value();
    ASSERT_TRUE(file.reserve(100));
    file.set_leftover(ResumableFile::Leftover::goes);
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(ResumableFileTest, IsWrittenByOneAtATime) {
  auto first = ResumableFile::open(path("out"));
  ASSERT_TRUE(first);
  const auto second = ResumableFile::open(path("out"));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("another program"));
  ASSERT_TRUE(first->commit());
  EXPECT_TRUE(ResumableFile::open(path("out")));
}

TEST_F(ResumableFileTest, FailsInAMissingFolder) {
  const Error error = ResumableFile::open(path("no/such/out")).error();
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_THAT(error.message, HasSubstr("no/such/out"));
}

}  // namespace
}  // namespace nanomind
