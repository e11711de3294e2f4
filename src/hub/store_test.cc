// SPDX-License-Identifier: Apache-2.0
#include "hub/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_support.h"

namespace nanomind {
namespace {

using test::write_file;
using testing::HasSubstr;

TEST(Store, IsFoundFromTheEnvironment) {
  EXPECT_EQ(Store::locate({.models = "/m", .xdg_data_home = "/x", .home = "/h"})->root(), "/m");
  EXPECT_EQ(Store::locate({.models = "", .xdg_data_home = "/x", .home = "/h"})->root(), "/x/nanomind/models");
  EXPECT_EQ(Store::locate({.models = "", .xdg_data_home = "", .home = "/h"})->root(),
            "/h/.local/share/nanomind/models");
  EXPECT_FALSE(Store::locate({.models = "", .xdg_data_home = "", .home = ""}));
}

TEST(Store, ListsWhatIsComplete) {
  const test::TemporaryFolder folder;
  const Store store(folder.path());
  write_file(folder / "b.gguf", "12345");
  write_file(folder / "hand.gguf", "123");
  write_file(folder / "short.gguf", "1");
  write_file(folder / "unfinished.gguf.partial", "1");
  ASSERT_TRUE(store.write_record(
      {.name = "b-name", .path = folder / "b.gguf", .bytes = 5, .sha256 = "ab", .source = "s", .modified_ns = 7}));
  ASSERT_TRUE(store.write_record({.name = "short", .path = folder / "short.gguf", .bytes = 2}));
  ASSERT_TRUE(store.write_record({.name = "gone", .path = folder / "gone.gguf", .bytes = 2}));
  const auto models = store.list();
  ASSERT_TRUE(models) << models.error().message;
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].name, "b-name");
  EXPECT_EQ((*models)[0].sha256, "ab");
  EXPECT_EQ((*models)[0].modified_ns, 7);
  EXPECT_EQ((*models)[1].name, "hand");
  for (const std::string_view name : {"b-name", "b.gguf", "b"}) {
    const auto found = store.find(name);
    ASSERT_TRUE(found && *found) << name;
    EXPECT_EQ((*found)->path, folder / "b.gguf");
  }
  EXPECT_FALSE(*store.find("short"));
}

TEST(Store, AnEmptyStoreIsNoErrorAndNothingIsMade) {
  const test::TemporaryFolder folder;
  const Store store(folder / "none");
  EXPECT_TRUE(store.list()->empty());
  EXPECT_FALSE(*store.find("x"));
  EXPECT_EQ(store.remove("x").error().code, ErrorCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

TEST(Store, RemoveTakesEverythingOfTheModelAndNothingElse) {
  const test::TemporaryFolder folder;
  const Store store(folder.path());
  write_file(folder / "a.gguf", "12345");
  write_file(folder / "a.gguf.partial", "123");
  write_file(folder / "packed/a.gguf.v1.packed", "1234");
  write_file(folder / "packed/aa.gguf.v1.packed", "1");
  write_file(folder / "a.gguf.wheels/pip.log", "1");
  write_file(folder / "aa.gguf", "1");
  ASSERT_TRUE(store.write_record({.name = "a-name", .path = folder / "a.gguf", .bytes = 5}));
  const auto freed = store.remove("a-name");
  ASSERT_TRUE(freed) << freed.error().message;
  EXPECT_GE(*freed, 13u);
  for (const std::string_view gone :
       {"a.gguf", "a.gguf.json", "a.gguf.partial", "packed/a.gguf.v1.packed", "a.gguf.wheels"}) {
    EXPECT_FALSE(std::filesystem::exists(folder / gone)) << gone;
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "aa.gguf"));
  EXPECT_TRUE(std::filesystem::exists(folder / "packed/aa.gguf.v1.packed"));
  EXPECT_EQ(store.remove("a-name").error().code, ErrorCode::not_found);
}

TEST(Store, RemoveStaysInsideTheFolder) {
  const test::TemporaryFolder folder;
  write_file(folder / "outside.gguf", "1");
  std::filesystem::create_directories(folder / "store");
  const Store store(folder / "store");
  EXPECT_EQ(store.remove("../outside.gguf").error().code, ErrorCode::not_found);
  EXPECT_TRUE(std::filesystem::exists(folder / "outside.gguf"));
}

TEST(Store, ALockedModelIsNotRemoved) {
  const test::TemporaryFolder folder;
  const Store store(folder.path());
  write_file(folder / "a.gguf", "1");
  {
    const auto lock = StoreLock::try_acquire(store, "a.gguf");
    ASSERT_TRUE(lock && *lock);
    const auto second = StoreLock::try_acquire(store, "a.gguf");
    ASSERT_TRUE(second);
    EXPECT_FALSE(*second);
    EXPECT_THAT(store.remove("a").error().message, HasSubstr("being pulled"));
  }
  EXPECT_TRUE(store.remove("a"));
}

}  // namespace
}  // namespace nanomind
