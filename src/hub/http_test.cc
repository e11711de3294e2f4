// SPDX-License-Identifier: Apache-2.0
// Downloads against a server in this process; what the server does wrong is scripted.
#include "hub/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <vector>

#include "hub/http_url.h"
#include "hub/test_server.h"
#include "hub/test_support.h"

namespace nanomind {
namespace {

using std::chrono::milliseconds;
using test::AfterBody;
using test::read_file;
using test::serve_content;
using test::ServerReply;
using test::ServerRequest;
using test::TestServer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Http : public testing::Test {
 protected:
  HttpOptions options() {
    HttpOptions out;
    out.sleep = [this](milliseconds wait, std::stop_token) { waits_.push_back(wait); };
    return out;
  }

  Result<void> download(const std::string& url, const HttpOptions& options, const std::string& token = "") {
    PartialFile file = TRY(PartialFile::open(folder_ / "m.gguf", "test"));
    return HttpClient(options).download({.url = url, .token = token}, file, {}, stop_.get_token());
  }
  Result<void> download(const std::string& url) { return download(url, options()); }
  std::string partial() const { return read_file(folder_ / "m.gguf.partial"); }

  const std::string content_ = test::model_bytes(300'000);
  const test::TemporaryFolder folder_;
  std::vector<milliseconds> waits_;
  std::stop_source stop_;
};

TEST_F(Http, FetchesAndReports) {
  TestServer server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  auto file = PartialFile::open(folder_ / "m.gguf", "test");
  ASSERT_TRUE(file);
  HttpProgress last;
  const auto done =
      HttpClient(options()).download({.url = server.url("/m")}, *file, [&](const HttpProgress& p) { last = p; }, {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), content_);
  EXPECT_EQ(last.done, content_.size());
  EXPECT_EQ(last.total, content_.size());
  EXPECT_EQ(file->sha256().value(), test::sha256_of(content_));
}

TEST_F(Http, FollowsRedirectsAndShowsTheTokenToTheFirstServerOnly) {
  TestServer store([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  TestServer hub([&](const ServerRequest& r) {
    if (r.target == "/a") return ServerReply{.status = 302, .headers = {{"Location", "/b"}}};
    return ServerReply{.status = 307, .headers = {{"Location", store.url("/c?signature=1")}}};
  });
  const auto done = download(hub.url("/a"), options(), "hf_secret");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), content_);
  ASSERT_EQ(hub.requests().size(), 2u);
  EXPECT_EQ(hub.requests()[1].header("authorization"), "Bearer hf_secret");
  ASSERT_EQ(store.requests().size(), 1u);
  EXPECT_EQ(store.requests()[0].header("authorization"), "");
}

TEST_F(Http, RedirectsInCirclesEnd) {
  TestServer server([](const ServerRequest&) { return ServerReply{.status = 301, .headers = {{"Location", "/a"}}}; });
  const auto done = download(server.url("/a"));
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("circles"));
}

TEST_F(Http, RedirectsLeaveNeitherHttpsNorHttp) {
  EXPECT_TRUE(check_redirect("https://a/x", "https://b/y"));
  EXPECT_TRUE(check_redirect("http://a/x", "https://b/y"));
  EXPECT_TRUE(check_redirect("http://a/x", "http://b/y"));
  EXPECT_FALSE(check_redirect("https://a/x", "http://b/y"));
  EXPECT_FALSE(check_redirect("http://a/x", "file:///etc/passwd"));
  EXPECT_FALSE(check_redirect("https://a/x", "ftp://b/y"));
  TestServer server(
      [](const ServerRequest&) { return ServerReply{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}; });
  EXPECT_FALSE(download(server.url("/a")));
}

TEST_F(Http, ATruncatedBodyIsGoneOnWith) {
  TestServer server([&](const ServerRequest& r) {
    ServerReply reply = serve_content(r, content_, "\"1\"");
    if (!r.range_start()) {
      reply.announced_length = content_.size();
      reply.body.resize(100'000);
    }
    return reply;
  });
  const auto done = download(server.url("/m"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), content_);
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[1].header("range"), "bytes=100000-");
  EXPECT_EQ(server.requests()[1].header("if-range"), "\"1\"");
}

TEST_F(Http, ALaterRunGoesOnToo) {
  TestServer server([&](const ServerRequest& r) {
    ServerReply reply = serve_content(r, content_, "\"1\"");
    if (!r.range_start()) {
      reply.announced_length = content_.size();
      reply.body.resize(100'000);
    }
    return reply;
  });
  HttpOptions once = options();
  once.max_attempts = 1;
  const auto broken = download(server.url("/m"), once);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, ErrorCode::network);
  EXPECT_EQ(partial().size(), 100'000u);
  ASSERT_TRUE(download(server.url("/m"), once));
  EXPECT_EQ(partial(), content_);
}

TEST_F(Http, AServerWithoutRangesStartsAgain) {
  int calls = 0;
  TestServer server([&](const ServerRequest&) {
    ServerReply reply{.headers = {{"ETag", "\"1\""}}, .body = content_};
    if (++calls == 1) {
      reply.announced_length = content_.size();
      reply.body.resize(1000);
    }
    return reply;
  });
  const auto done = download(server.url("/m"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), content_);
}

TEST_F(Http, AChangedFileStartsAgain) {
  const std::string newer = test::model_bytes(50'000) + "newer";
  int calls = 0;
  const auto serve = [&](const ServerRequest& r) {
    if (++calls > 1) return serve_content(r, newer, "\"2\"");
    ServerReply reply = serve_content(r, content_, "\"1\"");
    reply.announced_length = content_.size();
    reply.body.resize(1000);
    return reply;
  };
  TestServer server(serve);
  ASSERT_TRUE(download(server.url("/m")));
  EXPECT_EQ(partial(), newer);
}

TEST_F(Http, AChangedFileWhoseServerIgnoresTheConditionStartsAgain) {
  const std::string newer = test::model_bytes(50'000) + "newer";
  int calls = 0;
  TestServer server([&](ServerRequest r) {
    if (++calls > 1) {
      r.headers.erase("if-range");
      return serve_content(r, newer, "\"2\"");
    }
    ServerReply reply = serve_content(r, content_, "\"1\"");
    reply.announced_length = content_.size();
    reply.body.resize(1000);
    return reply;
  });
  const auto done = download(server.url("/m"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), newer);
}

TEST_F(Http, AFileThatShrankStartsAgain) {
  {
    auto file = PartialFile::open(folder_ / "m.gguf", "test");
    ASSERT_TRUE(file && file->restart("\"1\"") && file->append(std::as_bytes(std::span(content_))));
  }
  const std::string shorter = content_.substr(0, 1000);
  TestServer server([&](const ServerRequest& r) { return serve_content(r, shorter, "\"1\""); });
  const auto done = download(server.url("/m"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), shorter);
}

TEST_F(Http, RefusedAccessSaysWhatToDo) {
  for (const int status : {401, 403}) {
    TestServer server([&](const ServerRequest&) { return ServerReply{.status = status, .body = "<html>"}; });
    const auto without = download(server.url("/m?key=hidden"));
    ASSERT_FALSE(without);
    EXPECT_EQ(without.error().code, ErrorCode::network);
    EXPECT_THAT(without.error().message, HasSubstr("set HF_TOKEN"));
    EXPECT_THAT(without.error().message, Not(HasSubstr("hidden")));
    const auto with = download(server.url("/m"), options(), "hf_secret");
    ASSERT_FALSE(with);
    EXPECT_THAT(with.error().message, HasSubstr("although a token was sent"));
    EXPECT_THAT(with.error().message, Not(HasSubstr("hf_secret")));
    EXPECT_EQ(server.requests().size(), 2u);
  }
}

TEST_F(Http, AMissingFileIsNotAskedForAgain) {
  TestServer server([](const ServerRequest&) { return ServerReply{.status = 404}; });
  const auto done = download(server.url("/m"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::not_found);
  EXPECT_EQ(server.requests().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "m.gguf.partial"));
}

TEST_F(Http, ABusyServerIsGivenTheTimeItAsksFor) {
  int calls = 0;
  TestServer server([&](const ServerRequest& r) {
    if (++calls == 1) return ServerReply{.status = 429, .headers = {{"Retry-After", "7"}}};
    if (calls == 2) return ServerReply{.status = 503};
    return serve_content(r, content_, "\"1\"");
  });
  const auto done = download(server.url("/m"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(waits_, ElementsAre(milliseconds(7000), milliseconds(2000)));
  EXPECT_EQ(partial(), content_);
}

TEST_F(Http, PatienceIsBounded) {
  TestServer hour(
      [](const ServerRequest&) { return ServerReply{.status = 429, .headers = {{"Retry-After", "3600"}}}; });
  const auto asked = download(hour.url("/m"));
  ASSERT_FALSE(asked);
  EXPECT_THAT(asked.error().message, HasSubstr("wait for 3600 s"));
  EXPECT_TRUE(waits_.empty());
  TestServer busy([](const ServerRequest&) { return ServerReply{.status = 503}; });
  EXPECT_FALSE(download(busy.url("/m")));
  EXPECT_THAT(waits_, ElementsAre(milliseconds(1000), milliseconds(2000), milliseconds(4000), milliseconds(8000)));
}

TEST_F(Http, AWebPageIsNoModel) {
  TestServer server([](const ServerRequest&) {
    return ServerReply{.headers = {{"Content-Type", "text/HTML; charset=utf-8"}}, .body = "<!DOCTYPE html>Log in"};
  });
  const auto done = download(server.url("/m"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::network);
  EXPECT_THAT(done.error().message, HasSubstr("web page"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "m.gguf.partial"));
}

TEST_F(Http, ASilentServerIsLeftAndAskedAgain) {
  int calls = 0;
  TestServer server([&](const ServerRequest& r) {
    ServerReply reply = serve_content(r, content_, "\"1\"");
    if (++calls == 1) {
      reply.announced_length = content_.size();
      reply.body.resize(1000);
      reply.after_body = AfterBody::stay_silent;
    }
    return reply;
  });
  HttpOptions quick = options();
  quick.stall_timeout = milliseconds(200);
  const auto done = download(server.url("/m"), quick);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(partial(), content_);
  EXPECT_EQ(server.requests().at(1).header("range"), "bytes=1000-");
}

TEST_F(Http, StopsOnRequestAndKeepsWhatCame) {
  TestServer server([&](const ServerRequest&) {
    return ServerReply{.headers = {{"ETag", "\"1\""}},
                       .body = content_.substr(0, 1000),
                       .announced_length = content_.size(),
                       .after_body = AfterBody::stay_silent};
  });
  auto file = PartialFile::open(folder_ / "m.gguf", "test");
  ASSERT_TRUE(file);
  const auto stop_after_first = [&](const HttpProgress& p) {
    if (p.done > 0) stop_.request_stop();
  };
  const auto done =
      HttpClient(options()).download({.url = server.url("/m")}, *file, stop_after_first, stop_.get_token());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::cancelled);
  EXPECT_EQ(partial(), content_.substr(0, 1000));
}

TEST_F(Http, AFileOfAnotherSizeIsRefusedBeforeItComes) {
  TestServer server([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  auto file = PartialFile::open(folder_ / "m.gguf", "test");
  ASSERT_TRUE(file);
  const auto done = HttpClient(options()).download({.url = server.url("/m"), .expected_bytes = 5}, *file, {}, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::corrupt);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "m.gguf.partial"));
}

TEST_F(Http, AServerThatIsNotThereIsNotWaitedFor) {
  std::string url;
  {
    url = TestServer([](const ServerRequest&) { return ServerReply{}; }).url("/m");
  }
  const auto done = download(url);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::network);
  EXPECT_THAT(done.error().message, HasSubstr("online"));
  EXPECT_TRUE(waits_.empty());
}

TEST_F(Http, UsesTheProxyOfTheEnvironment) {
  TestServer proxy([&](const ServerRequest& r) { return serve_content(r, content_, "\"1\""); });
  const char* before = ::getenv("http_proxy");
  const std::string saved = before ? before : "";
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  const auto done = download("http://models.invalid/m", options(), "hf_secret");
  before ? ::setenv("http_proxy", saved.c_str(), 1) : ::unsetenv("http_proxy");
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(proxy.requests().size(), 1u);
  EXPECT_EQ(proxy.requests()[0].target, "http://models.invalid/m");
  EXPECT_EQ(proxy.requests()[0].header("authorization"), "") << "a token must not travel unprotected";
}

TEST_F(Http, TextIsBounded) {
  TestServer server([](const ServerRequest&) { return ServerReply{.body = "0123456789"}; });
  const HttpClient client(options());
  EXPECT_EQ(client.get_text({.url = server.url("/t")}, 10, {}).value(), "0123456789");
  EXPECT_FALSE(client.get_text({.url = server.url("/t")}, 9, {}));
}

TEST(PublicUrl, HidesWhatIsSecret) {
  EXPECT_EQ(public_url("https://me:pw@host:8443/a/b?key=1#x"), "https://host:8443/a/b");
}

}  // namespace
}  // namespace nanomind
