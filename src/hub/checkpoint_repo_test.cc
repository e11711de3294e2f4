// SPDX-License-Identifier: Apache-2.0
// Pulls from repositories without GGUF files: tests/data/checkpoint/llava_onevision, a tiny random model as its
// publisher saves it, in a hub that a server in this process plays.
#include "hub/checkpoint_repo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/thread_pool.h"
#include "convert/convert.h"
#include "hub/pull.h"
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

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

class CheckpointRepo : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& file : fs::directory_iterator("tests/data/checkpoint/llava_onevision"))
      contents_[file.path().filename()] = read_file(file.path());
    contents_["README.md"] = "nothing that is read";
    options_.hub.endpoint = server_.url("");
    options_.http.sleep = [](std::chrono::milliseconds, std::stop_token) {};
    options_.http.max_attempts = 1;
    options_.free_space = [](const fs::path&) -> Result<uint64_t> { return uint64_t{1} << 40; };
  }

  // As the hub answers: of large files it knows the hash.
  std::string listing() const {
    std::string items = R"({"type":"directory","path":"onnx","size":0})";
    for (const auto& [name, bytes] : contents_) {
      items += R"(,{"type":"file","path":")" + name + R"(","size":)" + std::to_string(bytes.size() + wrong_);
      if (name.ends_with(".safetensors"))
        items += R"(,"lfs":{"oid":")" + test::sha256_of(bytes) + R"(","size":)" + std::to_string(bytes.size()) + "}";
      items += "}";
    }
    return "[" + items + "]";
  }
  ServerReply reply(const ServerRequest& request) {
    ++asked_[request.target];
    const std::string tree = "/api/models/org/llava/tree/" + revision_ + "?recursive=true";
    if (request.target == tree) return ServerReply{.body = listing()};
    const std::string files = "/org/llava/resolve/" + revision_ + "/";
    const auto content = contents_.find(request.target.starts_with(files) ? request.target.substr(files.size()) : "");
    return content == contents_.end() ? ServerReply{.status = 404}
                                      : test::serve_content(request, content->second, "\"1\"");
  }

  // What the conversion makes of the same files in a folder of that name.
  std::pair<std::string, std::string> converted(DType dtype, Halves halves = Halves::all) const {
    for (const auto& [name, bytes] : contents_) test::write_file(folder_ / "llava" / name, bytes);
    ThreadPool pool(1);
    const fs::path target = folder_ / "expected.gguf";
    EXPECT_TRUE(convert_checkpoint(folder_ / "llava", target, {.dtype = dtype, .halves = halves}, {.pool = pool}));
    return {read_file(target), halves == Halves::all ? read_file(vision_path(target)) : ""};
  }
  Result<PulledModel> pull_named(const std::string& quant) {
    return pull(HubName{.repo = "org/llava", .quant = quant}, *Catalog::parse(R"({"models":[]})", "Test"), store_,
                options_);
  }

  std::map<std::string, std::string> contents_;
  std::string revision_ = "main";
  size_t wrong_ = 0;  // bytes that the listing adds to each size
  std::map<std::string, int> asked_;
  const test::TemporaryFolder folder_;
  const Store store_{folder_ / "store"};
  PullOptions options_;
  TestServer server_{[this](const ServerRequest& request) { return reply(request); }};
};

TEST_F(CheckpointRepo, BothHalvesAreConvertedAndNothingIsFetchedTwice) {
  const auto pulled = pull_named("");
  ASSERT_TRUE(pulled) << pulled.error().message;
  const auto [model, vision] = converted(DType::q8_0);
  EXPECT_EQ(pulled->model.path.filename(), "org--llava--llava-Q8_0.gguf");
  EXPECT_EQ(pulled->model.vision.filename(), "mmproj-org--llava--llava-Q8_0.gguf");
  EXPECT_EQ(read_file(pulled->model.path), model);
  EXPECT_EQ(read_file(pulled->model.vision), vision);
  EXPECT_EQ(pulled->model.source, "hub org/llava, converted");
  EXPECT_EQ(asked_["/org/llava/resolve/main/model.safetensors"], 1);
  EXPECT_EQ(asked_["/org/llava/resolve/main/README.md"], 0);
  for (const auto& left : fs::directory_iterator(store_.root()))
    EXPECT_THAT(left.path().filename().string(), Not(testing::EndsWith(".wheels")));

  asked_.clear();
  EXPECT_TRUE(pull_named("")->already_there);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(CheckpointRepo, TheNameSaysTheType) {
  const auto pulled = pull_named("F16");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(read_file(pulled->model.path), converted(DType::f16).first);
  const auto other = pull_named("Q4_K_M");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(other.error().message, HasSubstr("`nanomind quantize`"));
}

TEST_F(CheckpointRepo, AVisionFileThatIsMissingIsMadeAlone) {
  ASSERT_TRUE(pull_named(""));
  const fs::path vision = store_.path_of("mmproj-org--llava--llava-Q8_0.gguf");
  const std::string bytes = read_file(vision);
  fs::remove(vision);
  const auto pulled = pull_named("");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(read_file(vision), bytes);
}

TEST_F(CheckpointRepo, OtherBytesAreRefused) {
  wrong_ = 1;
  const auto pulled = pull_named("");
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().code, ErrorCode::corrupt);
  EXPECT_THAT(pulled.error().message, HasSubstr("were promised"));
}

TEST_F(CheckpointRepo, RepositoriesWithModelFilesAreNone) {
  EXPECT_TRUE(lists_checkpoint(R"([{"path":"config.json"},{"path":"model.safetensors"}])"));
  EXPECT_FALSE(lists_checkpoint(R"([{"path":"config.json"},{"path":"model.safetensors"},{"path":"a-Q8_0.gguf"}])"));
  EXPECT_FALSE(lists_checkpoint(R"([{"path":"config.json"},{"path":"pytorch_model.bin"}])"));
  EXPECT_FALSE(lists_checkpoint("<html>"));
  EXPECT_EQ(checkpoint_files("[]", "o/r").error().code, ErrorCode::not_found);
}

// A catalog that knows the commit needs no hashes: the commit fixes the bytes.
TEST_F(CheckpointRepo, ACatalogMayNameACommit) {
  const auto parse = [](const std::string& revision) {
    const std::string sources =
        R"("sources":[{"convert":"llava","type":"q8_0","hub":"org/llava","revision":")" + revision + "\"}]";
    return Catalog::parse(
        R"({"models":[{"name":"llava","summary":"s","architecture":"qwen2","licence":"MIT","file":"llava.gguf",)" +
            sources + R"(,"vision":{"file":"mmproj-llava.gguf",)" + sources + "}}]}",
        "Test");
  };
  EXPECT_THAT(parse("main").error().message, HasSubstr("a commit"));
  revision_ = kCommit;
  const auto catalog = parse(kCommit);
  ASSERT_TRUE(catalog) << catalog.error().message;
  const auto pulled = pull(CatalogName{"llava"}, *catalog, store_, options_);
  ASSERT_TRUE(pulled) << pulled.error().message;
  const auto [model, vision] = converted(DType::q8_0);
  EXPECT_EQ(read_file(store_.path_of("llava.gguf")), model);
  EXPECT_EQ(read_file(store_.path_of("mmproj-llava.gguf")), vision);
  EXPECT_EQ(asked_["/org/llava/resolve/" + kCommit + "/model.safetensors"], 1);
  const auto stored = find_stored(CatalogName{"llava"}, *catalog, store_);
  ASSERT_TRUE(stored && *stored);
  EXPECT_EQ((*stored)->vision, store_.path_of("mmproj-llava.gguf"));
  EXPECT_TRUE(pull(CatalogName{"llava"}, *catalog, store_, options_)->already_there);
}

}  // namespace
}  // namespace nanomind
