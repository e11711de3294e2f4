// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace nanomind {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() {
    std::string name = (fs::temp_directory_path() / "mapped_file_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~MappedFileTest() override { fs::remove_all(folder_); }

  fs::path path(const char* name) const { return folder_ / name; }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  static std::string text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  static std::string content(const fs::path& p) {
    std::ifstream in(p, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_;
};

TEST_F(MappedFileTest, ReadsAFile) {
  std::ofstream(path("a")) << "hello";
  EXPECT_EQ(text_of(MappedFile::open(path("a")).value()), "hello");
}

TEST_F(MappedFileTest, MovesWithItsBytes) {
  std::ofstream(path("a")) << "first";
  std::ofstream(path("b")) << "second";
  MappedFile a = MappedFile::open(path("a")).value();
  MappedFile moved = std::move(a);
  EXPECT_EQ(text_of(moved), "first");
  moved = MappedFile::open(path("b")).value();
  EXPECT_EQ(text_of(moved), "second");
}

TEST_F(MappedFileTest, EmptyFileHasNoBytes) {
  std::ofstream(path("empty")).close();
  EXPECT_TRUE(MappedFile::open(path("empty")).value().bytes().empty());
}

TEST_F(MappedFileTest, MissingFileIsNotFoundAndNamed) {
  const Error error = MappedFile::open(path("missing")).error();
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_THAT(error.message, HasSubstr(path("missing").string()));
}

TEST_F(MappedFileTest, DirectoryAndDeviceAreRefused) {
  EXPECT_EQ(MappedFile::open(folder_).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(MappedFile::open("/dev/null").error().code, ErrorCode::invalid_argument);
}

TEST_F(MappedFileTest, PipeIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const Error error = MappedFile::open(path("pipe")).error();
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_THAT(error.message, HasSubstr("not a regular file"));
}

TEST_F(MappedFileTest, MappingOutlivesTheFilesName) {
  std::ofstream(path("a")) << "hello";
  const MappedFile file = MappedFile::open(path("a")).value();
  fs::remove(path("a"));
  EXPECT_EQ(text_of(file), "hello");
}

TEST_F(MappedFileTest, AtomicFileAppearsOnlyWithCommit) {
  AtomicFile file = AtomicFile::create(path("out")).value();
  ASSERT_TRUE(file.write_at(6, bytes("world")));
  ASSERT_TRUE(file.write_at(0, bytes("hello ")));
  EXPECT_FALSE(fs::exists(path("out")));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(path("out")), "hello world");
  EXPECT_EQ(files(), 1u);
}

TEST_F(MappedFileTest, AtomicFileWithoutCommitLeavesTheOldFile) {
  std::ofstream(path("out")) << "old";
  {
    AtomicFile file = AtomicFile::create(path("out")).value();
    ASSERT_TRUE(file.write_at(0, bytes("new")));
  }
  EXPECT_EQ(content(path("out")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(MappedFileTest, AtomicFileReplacesUnderReaders) {
  std::ofstream(path("out")) << "old";
  const MappedFile reader = MappedFile::open(path("out")).value();
  AtomicFile file = AtomicFile::create(path("out")).value();
  ASSERT_TRUE(file.write_at(0, bytes("newer")));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(text_of(reader), "old");
  EXPECT_EQ(content(path("out")), "newer");
}

TEST_F(MappedFileTest, AtomicFileKeepsWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  fs::create_directory(path("folder"));
  for (const char* name : {"pipe", "link", "folder"}) {
    const auto file = AtomicFile::create(path(name));
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(file.error().message, HasSubstr(path(name).string() + " is not a regular file"));
  }
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(files(), 3u);
}

TEST_F(MappedFileTest, AtomicFileWritesWhatLinksLeadTo) {
  fs::create_directory(path("folder"));
  std::ofstream(path("folder/old")) << "old";
  fs::create_symlink("folder/old", path("one"));
  fs::create_symlink("one", path("two"));
  fs::create_symlink("folder/new", path("dangling"));
  for (const char* name : {"two", "dangling"}) {
    AtomicFile file = AtomicFile::create(path(name)).value();
    ASSERT_TRUE(file.write_at(0, bytes("written")));
    ASSERT_TRUE(file.commit());
    EXPECT_TRUE(fs::is_symlink(path(name)));
  }
  EXPECT_EQ(content(path("folder/old")), "written");
  EXPECT_EQ(content(path("folder/new")), "written");
  EXPECT_TRUE(fs::is_symlink(path("one")));
  fs::create_symlink("circle", path("circle"));
  EXPECT_FALSE(AtomicFile::create(path("circle")));
}

TEST_F(MappedFileTest, AtomicFileMayBeForItsOwnerAlone) {
  std::ofstream(path("mine")) << "old";
  fs::permissions(path("mine"), fs::perms(0644));
  ASSERT_TRUE(AtomicFile::create(path("mine"), AtomicFile::Readers::owner).value().commit());
  EXPECT_EQ(fs::status(path("mine")).permissions(), fs::perms(0600));
  ASSERT_TRUE(AtomicFile::create(path("ours")).value().commit());
  EXPECT_EQ(fs::status(path("ours")).permissions(), fs::perms(0644));
}

TEST_F(MappedFileTest, AtomicFileMovesItsDuty) {
  AtomicFile file = AtomicFile::create(path("out")).value();
  {
    AtomicFile moved = std::move(file);
    ASSERT_TRUE(moved.write_at(0, bytes("x")));
    ASSERT_TRUE(moved.commit());
  }
  EXPECT_EQ(content(path("out")), "x");
  EXPECT_EQ(files(), 1u);
}

TEST_F(MappedFileTest, ReservedSpaceIsPartOfTheFile) {
  AtomicFile file = AtomicFile::create(path("out")).value();
  ASSERT_TRUE(file.reserve(10'000));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(fs::file_size(path("out")), 10'000u);
}

TEST_F(MappedFileTest, AtomicFileInAMissingFolderFails) {
  const Error error = AtomicFile::create(path("no/such/out")).error();
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_THAT(error.message, HasSubstr("no/such/out"));
}

}  // namespace
}  // namespace nanomind
