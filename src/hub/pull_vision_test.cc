// SPDX-License-Identifier: Apache-2.0
// Models of two files: both come, are found, shared, kept and removed. The hub is a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/pull.h"
#include "hub/test_server.h"
#include "hub/test_support.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::serve_content;
using test::ServerReply;
using test::ServerRequest;
using test::TestServer;
using test::write_file;
using testing::HasSubstr;

class PullVision : public testing::Test {
 protected:
  PullVision() {
    options_.http.sleep = [](std::chrono::milliseconds, std::stop_token) {};
    options_.http.max_attempts = 1;
    options_.free_space = [this](const fs::path&) -> Result<uint64_t> { return room_; };
    options_.bundled_folders = {folder_ / "nowhere", folder_ / "share"};
    write_file(folder_ / "share/mmproj-toy.gguf", eyes_);
  }

  static std::string file(const std::string& name, const std::string& content, const std::string& source) {
    return R"("file":")" + name + R"(","bytes":)" + std::to_string(content.size()) + R"(,"sha256":")" +
           test::sha256_of(content) + R"(","sources":[)" + source + "]";
  }
  // "text" and "toy" have the language model in common; "toy" sees.
  Catalog catalog() const {
    const std::string model = R"("summary":"s","architecture":"llama","licence":"MIT",)" +
                              file("m.gguf", content_, R"({"url":")" + server_.url("/m.gguf") + R"("})");
    auto parsed =
        Catalog::parse(R"({"models":[{"name":"text",)" + model + R"(},{"name":"toy",)" + model + R"(,"vision":{)" +
                           file("mmproj-toy.gguf", eyes_, R"({"bundled":"mmproj-toy.gguf"})") + "}}]}",
                       "Test");
    CHECK(parsed.has_value());
    return *std::move(parsed);
  }
  Result<PulledModel> pull_named(const std::string& name) {
    return pull(CatalogName{name}, catalog(), store_, options_);
  }
  bool is_here(const std::string& name) { return find_stored(CatalogName{name}, catalog(), store_)->has_value(); }
  Result<RemovedModel> remove(const std::string& name) { return remove_stored(CatalogName{name}, catalog(), store_); }

  const std::string content_ = test::model_bytes(100'000);
  const std::string eyes_ = test::model_bytes(20'000);
  const test::TemporaryFolder folder_;
  const Store store_{folder_ / "store"};
  const fs::path model_path_ = folder_ / "store/m.gguf";
  const fs::path eyes_path_ = folder_ / "store/mmproj-toy.gguf";
  uint64_t room_ = uint64_t{1} << 40;
  TestServer server_{[this](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); }};
  PullOptions options_;
};

TEST_F(PullVision, BothFilesComeAndAreFoundAgain) {
  const auto pulled = pull_named("toy");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_FALSE(pulled->already_there);
  EXPECT_EQ(pulled->model.path, model_path_);
  EXPECT_EQ(pulled->model.vision, eyes_path_);
  EXPECT_EQ(read_file(eyes_path_), eyes_);
  EXPECT_TRUE(pull_named("toy")->already_there);
  const auto found = find_stored(CatalogName{"toy"}, catalog(), store_);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->vision, eyes_path_);
  EXPECT_EQ((*found)->name, "toy");
  // The vision file is a part, not a model.
  EXPECT_EQ(store_.list()->size(), 1u);
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(PullVision, ASharedFileIsFetchedOnceAndKeptAsLongAsItIsNeeded) {
  ASSERT_TRUE(pull_named("text"));
  EXPECT_FALSE(is_here("toy")) << "its vision file is not here";
  const auto toy = pull_named("toy");
  ASSERT_TRUE(toy) << toy.error().message;
  EXPECT_FALSE(toy->already_there);
  EXPECT_EQ(toy->model.name, "toy");
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ((*find_stored(CatalogName{"text"}, catalog(), store_))->vision, "");

  const auto removed = remove("toy");
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_GE(removed->bytes, eyes_.size());
  EXPECT_LT(removed->bytes, content_.size());
  EXPECT_EQ(removed->kept_for, "text");
  EXPECT_FALSE(fs::exists(eyes_path_));
  EXPECT_TRUE(is_here("text"));
  EXPECT_EQ(remove("toy").error().code, ErrorCode::not_found);

  ASSERT_TRUE(pull_named("toy"));
  EXPECT_EQ(remove("text")->kept_for, "toy");
  EXPECT_TRUE(is_here("toy"));
  const auto last = remove("toy");
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ(last->kept_for, "");
  EXPECT_GE(last->bytes, content_.size() + eyes_.size());
  EXPECT_FALSE(fs::exists(model_path_));
}

TEST_F(PullVision, AFileThatCameForAnotherModelIsNotRemoved) {
  ASSERT_TRUE(pull_named("toy"));
  EXPECT_TRUE(is_here("text")) << "nothing of it is missing";
  const auto removed = remove("text");
  ASSERT_FALSE(removed);
  EXPECT_THAT(removed.error().message, HasSubstr("nanomind rm toy"));
  EXPECT_TRUE(is_here("toy"));
}

TEST_F(PullVision, AnInstallationWithoutTheFileIsTold) {
  fs::remove(folder_ / "share/mmproj-toy.gguf");
  const auto pulled = pull_named("toy");
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::not_found);
  EXPECT_THAT(pulled.error().message, testing::AllOf(HasSubstr("mmproj-toy.gguf"), HasSubstr("share")));
  write_file(folder_ / "share/mmproj-toy.gguf", content_);
  EXPECT_EQ(pull_named("toy").error().code, ErrorCode::corrupt);
  EXPECT_FALSE(fs::exists(eyes_path_));
}

TEST_F(PullVision, RoomIsCountedForBothBeforeAnythingIsFetched) {
  room_ = (16 << 20) + content_.size() + eyes_.size() - 1;
  EXPECT_EQ(pull_named("toy").error().code, ErrorCode::no_space);
  EXPECT_TRUE(server_.requests().empty());
  room_ += 1;
  EXPECT_TRUE(pull_named("toy"));
}

TEST_F(PullVision, TheHubsVisionFileComesAlong) {
  std::optional<TestServer> hub([&](const ServerRequest& r) {
    const auto item = [](const std::string& path, const std::string& content) {
      return R"({"type":"file","path":")" + path + R"(","lfs":{"oid":")" + test::sha256_of(content) + R"(","size":)" +
             std::to_string(content.size()) + "}}";
    };
    if (r.target == "/api/models/org/repo/tree/main?recursive=true") {
      return ServerReply{.body = "[" + item("x-Q8_0.gguf", content_) + "," + item("mmproj-x-F16.gguf", eyes_) + "," +
                                 item("x-Q4_K_M.gguf", content_) + "," + item("mmproj-x-BF16.gguf", content_) + "]"};
    }
    return serve_content(r, r.target.find("mmproj") == std::string::npos ? content_ : eyes_, "\"1\"");
  });
  options_.hub = {.endpoint = hub->url(), .token = ""};
  const HubName small{"org/repo", "Q4_K_M"}, large{"org/repo", "Q8_0"};
  const auto pulled = pull(small, catalog(), store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.vision.filename(), "org--repo--mmproj-x-F16.gguf");
  ASSERT_TRUE(pull(large, catalog(), store_, options_));
  ASSERT_TRUE(pull(HubName{"org/repo", ""}, catalog(), store_, options_));
  EXPECT_EQ(hub->requests().size(), 3u + 3u) << "three listings and three files";
  EXPECT_EQ(pull(HubName{"org/repo", "mmproj-x-F16.gguf"}, catalog(), store_, options_).error().code,
            ErrorCode::invalid_argument);
  hub.reset();
  EXPECT_TRUE(pull(small, catalog(), store_, options_)->already_there);
  EXPECT_TRUE(pull(HubName{"org/repo", ""}, catalog(), store_, options_)->already_there) << "another name of it";

  ASSERT_TRUE(remove_stored(small, catalog(), store_));
  EXPECT_TRUE(fs::exists(pulled->model.path)) << "org/repo is the same file";
  ASSERT_TRUE(remove_stored(HubName{"org/repo", ""}, catalog(), store_));
  EXPECT_FALSE(fs::exists(pulled->model.path));
  EXPECT_EQ((*find_stored(large, catalog(), store_))->vision, pulled->model.vision);
  ASSERT_TRUE(remove_stored(large, catalog(), store_));
  EXPECT_FALSE(fs::exists(pulled->model.vision));
  EXPECT_FALSE(*find_stored(large, catalog(), store_));
}

TEST_F(PullVision, WhatLiesBesideAFileIsTakenInToo) {
  write_file(folder_ / "blobs/0a", test::model_bytes(0));
  fs::create_directories(folder_ / "here");
  fs::create_symlink(folder_ / "blobs/0a", folder_ / "here/model.gguf");
  write_file(folder_ / "here/mmproj.gguf", test::model_bytes(8));
  const PathName name{folder_ / "here/model.gguf"};
  const auto pulled = pull(name, catalog(), store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.vision, store_.path_of("mmproj-model.gguf"));
  EXPECT_EQ(read_file(pulled->model.vision), test::model_bytes(8));
  EXPECT_EQ((*find_stored(CatalogName{"model"}, catalog(), store_))->vision, pulled->model.vision);
  ASSERT_TRUE(remove_stored(CatalogName{"model"}, catalog(), store_));
  EXPECT_FALSE(fs::exists(pulled->model.vision));
  EXPECT_TRUE(fs::exists(folder_ / "here/mmproj.gguf"));
  const auto alone = pull(PathName{folder_ / "here/mmproj.gguf"}, catalog(), store_, options_);
  ASSERT_FALSE(alone);
  EXPECT_THAT(alone.error().message, HasSubstr("vision file"));
}

}  // namespace
}  // namespace nanomind
