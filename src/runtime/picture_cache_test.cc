// SPDX-License-Identifier: Apache-2.0
// Rows of pictures on disk: what is found is what was stored, and whatever has happened to a file is noticed.
#include "runtime/picture_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace nanomind {
namespace {

namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

Sha256Digest name(uint8_t i) { return {i}; }

CutPicture cut(Rgb color) {
  Image tile({4, 2});
  fill(tile, color);
  return {.tiles = {tile}, .places = {}, .parts = {{.text = "<", .tile = 0, .blended = {}}}};
}

class PictureCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("nanomind-picture-cache-test-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  PictureCache cache(uint64_t most_bytes = 1 << 20) {
    return PictureCache({.folder = folder_ / "pictures",
                         .most_bytes = most_bytes,
                         .log = Log([this](LogLevel, std::string_view text) { warnings_.emplace_back(text); })});
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder_ / "pictures", none)) files.push_back(entry.path());
    return files;
  }
  fs::path file(const Sha256Digest& digest) const { return folder_ / "pictures" / (hex(digest) + ".rows"); }
  // Makes a stored file look as if it had been used so many seconds ago.
  void age(const Sha256Digest& digest, int seconds) const {
    fs::last_write_time(file(digest), fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }

  fs::path folder_;
  Sha256Digest encoder_{1};
  std::vector<std::string> warnings_;
};

TEST_F(PictureCacheTest, WhatWasStoredIsFoundByAnother) {
  EXPECT_THAT(cache().find(name(1), 3), IsEmpty());
  EXPECT_FALSE(fs::exists(folder_));
  cache().store(name(1), std::vector{1.0F, -2.5F, 3e-9F});
  EXPECT_THAT(cache().find(name(1), 3), ElementsAre(1.0F, -2.5F, 3e-9F));
  EXPECT_THAT(cache().find(name(2), 3), IsEmpty());
  EXPECT_EQ(fs::status(folder_ / "pictures").permissions(), fs::perms::owner_all);
  EXPECT_THAT(files(), ElementsAre(file(name(1))));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PictureCacheTest, NamesTellApartWhatRowsDependOn) {
  const auto digest = [&] { return rows_digest(cut({.red = 1, .green = 2, .blue = 3}), encoder_); };
  const Sha256Digest same = digest();
  EXPECT_EQ(digest(), same);
  EXPECT_NE(rows_digest(cut({.red = 1, .green = 2, .blue = 4}), encoder_), same);
  CutPicture blended = cut({.red = 1, .green = 2, .blue = 3});
  blended.parts.push_back({.text = {}, .tile = -1, .blended = {{}}});
  EXPECT_NE(rows_digest(blended, encoder_), same);
  CutPicture turned = cut({.red = 1, .green = 2, .blue = 3});
  turned.tiles[0].size = {2, 4};
  EXPECT_NE(rows_digest(turned, encoder_), same);
  encoder_ = {2};
  EXPECT_NE(digest(), same);
}

TEST_F(PictureCacheTest, DamagedFilesAreRemoved) {
  const std::vector<float> rows{1, 2, 3, 4};
  cache().store(name(1), rows);
  std::ifstream stream(file(name(1)), std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(stream), {});
  const auto expect_removed = [&](const std::string& bytes) {
    std::ofstream(file(name(1)), std::ios::binary) << bytes;
    EXPECT_THAT(cache().find(name(1), 4), IsEmpty());
    EXPECT_FALSE(fs::exists(file(name(1))));
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    expect_removed(damaged);
    expect_removed(whole.substr(0, i));
  }
  expect_removed(whole + "x");
  expect_removed("<html>");
  // Sound, but of something else.
  std::ofstream(file(name(1)), std::ios::binary) << whole;
  EXPECT_THAT(cache().find(name(1), 2), IsEmpty());
  EXPECT_THAT(files(), IsEmpty());
  cache().store(name(2), rows);
  fs::rename(file(name(2)), file(name(1)));
  EXPECT_THAT(cache().find(name(1), 4), IsEmpty());
  // After all that it is stored again.
  cache().store(name(1), rows);
  EXPECT_EQ(cache().find(name(1), 4), rows);
}

TEST_F(PictureCacheTest, ThoseUsedLastStay) {
  const std::vector<float> rows(100, 1.0F);
  cache().store(name(1), rows);
  const uint64_t one = fs::file_size(file(name(1)));
  const uint64_t room = 3 * one + one / 2;
  cache(room).store(name(2), rows);
  cache(room).store(name(3), rows);
  for (const uint8_t i : {1, 2, 3}) age(name(i), 100 - i);
  EXPECT_EQ(cache(room).find(name(1), 100), rows);                            // a use
  std::ofstream(folder_ / "pictures/notes.txt") << std::string(10'000, 'x');  // not the cache's business
  cache(room).store(name(4), rows);
  EXPECT_THAT(files(),
              UnorderedElementsAre(file(name(1)), file(name(3)), file(name(4)), folder_ / "pictures/notes.txt"));
  // What a program left that ended while it wrote counts, and goes.
  fs::rename(file(name(3)), file(name(3)).string() + ".abcdef");
  cache(room).store(name(5), rows);
  EXPECT_FALSE(fs::exists(file(name(3)).string() + ".abcdef"));
  // One that is larger than all room leaves the others alone.
  cache(room).store(name(6), std::vector<float>(1000, 1.0F));
  EXPECT_THAT(files(),
              UnorderedElementsAre(file(name(1)), file(name(4)), file(name(5)), folder_ / "pictures/notes.txt"));
}

TEST_F(PictureCacheTest, AFullDiskIsAWarningAndLeavesNothing) {
  cache().store(name(1), std::vector{1.0F});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  PictureCache full = cache();
  full.store(name(2), std::vector<float>(1000, 1.0F));
  full.store(name(3), std::vector<float>(1000, 1.0F));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], testing::HasSubstr("--no-picture-cache"));
  EXPECT_THAT(files(), ElementsAre(file(name(1))));
}

TEST_F(PictureCacheTest, WithoutAFolderThatCanBeMadeItWarns) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "pictures") << "a file";
  cache().store(name(1), std::vector{1.0F});
  EXPECT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(cache().find(name(1), 1), IsEmpty());
}

}  // namespace
}  // namespace nanomind
