// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_repo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nanomind {
namespace {

using testing::HasSubstr;

// The form of the hub's answer: size is the LFS file's, oid its SHA-256.
constexpr std::string_view kListing = R"([
  {"type":"directory","path":"extra","size":0},
  {"type":"file","path":"README.md","size":10},
  {"type":"file","path":"mmproj-model-Q4_K_M.gguf","size":5,"lfs":{"oid":"aa","size":5}},
  {"type":"file","path":"model-BF16.gguf","size":7,"lfs":{"oid":"bf","size":700}},
  {"type":"file","path":"model-F16.gguf","size":7,"lfs":{"oid":"f0","size":701}},
  {"type":"file","path":"model-Q8_0.gguf","size":7,"lfs":{"oid":"88","size":800}},
  {"type":"file","path":"model-q4_k_m.gguf","size":7,"lfs":{"oid":"44","size":400}},
  {"type":"file","path":"big-Q6_K-00001-of-00002.gguf","size":7,"lfs":{"oid":"66","size":600}},
  {"type":"file","path":"../escape-Q2_K.gguf","size":7}
])";

TEST(HubRepo, ChoosesByQuantisation) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "model-q4_k_m.gguf"}, {"Q8_0", "model-Q8_0.gguf"}, {"q8_0", "model-Q8_0.gguf"},
      {"F16", "model-F16.gguf"}, {"BF16", "model-BF16.gguf"}, {"model-F16.gguf", "model-F16.gguf"}};
  for (const auto& [quant, path] : cases) {
    const auto file = choose_hub_files(kListing, {"org/repo", quant});
    ASSERT_TRUE(file) << quant << ": " << file.error().message;
    EXPECT_EQ(file->model.path, path);
  }
  const auto file = choose_hub_files(kListing, {"org/repo", ""});
  EXPECT_EQ(file->model.bytes, 400u);
  EXPECT_EQ(file->model.sha256, "44");
}

TEST(HubRepo, FallsBackInTheUsualOrder) {
  EXPECT_EQ(choose_hub_files(R"([{"path":"m-Q2_K.gguf"},{"path":"m-Q8_0.gguf"}])", {"o/r", ""})->model.path,
            "m-Q8_0.gguf");
  EXPECT_EQ(choose_hub_files(R"([{"path":"m-Q2_K.gguf"},{"path":"m-Q3_K.gguf"}])", {"o/r", ""})->model.path,
            "m-Q2_K.gguf");
}

TEST(HubRepo, AVisionFileComesAlong) {
  const auto plain = choose_hub_files(kListing, {"org/repo", "Q8_0"});
  ASSERT_TRUE(plain && plain->vision);
  EXPECT_EQ(plain->vision->path, "mmproj-model-Q4_K_M.gguf");
  EXPECT_EQ(plain->vision->sha256, "aa");
  EXPECT_EQ(plain->vision->bytes, 5u);
  constexpr std::string_view kSeveral = R"([{"path":"x-Q4_K_M.gguf"},{"path":"x-Q8_0.gguf"},{"path":"x-F16.gguf"},
    {"path":"mmproj-x-BF16.gguf"},{"path":"mmproj-x-F16.gguf"},{"path":"mmproj-x-Q8_0.gguf"}])";
  EXPECT_EQ(choose_hub_files(kSeveral, {"o/r", ""})->vision->path, "mmproj-x-Q8_0.gguf");
  EXPECT_EQ(choose_hub_files(kSeveral, {"o/r", "F16"})->vision->path, "mmproj-x-F16.gguf");
  EXPECT_FALSE(choose_hub_files(R"([{"path":"x-Q8_0.gguf"}])", {"o/r", ""})->vision);
  EXPECT_EQ(choose_hub_files(R"([{"path":"mmproj-x-Q8_0.gguf"}])", {"o/r", ""}).error().code, ErrorCode::not_found);
}

TEST(HubRepo, SaysWhatIsThere) {
  const auto missing = choose_hub_files(kListing, {"org/repo", "Q4_K"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("model-q4_k_m.gguf"));
  EXPECT_EQ(choose_hub_files(kListing, {"org/repo", "Q2_K"}).error().code, ErrorCode::not_found);
  EXPECT_EQ(choose_hub_files(kListing, {"org/repo", "Q6_K"}).error().code, ErrorCode::unsupported);
  EXPECT_THAT(choose_hub_files("[]", {"org/repo", ""}).error().message, HasSubstr("no GGUF"));
  EXPECT_EQ(choose_hub_files("<html>", {"org/repo", ""}).error().code, ErrorCode::network);
}

TEST(HubRepo, Addresses) {
  EXPECT_EQ(hub_file_url("https://huggingface.co/", "org/repo", "main", "a b/m.gguf"),
            "https://huggingface.co/org/repo/resolve/main/a%20b/m.gguf");
}

}  // namespace
}  // namespace nanomind
