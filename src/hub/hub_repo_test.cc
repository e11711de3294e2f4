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
    const auto file = choose_hub_file(kListing, {"org/repo", quant});
    ASSERT_TRUE(file) << quant << ": " << file.error().message;
    EXPECT_EQ(file->path, path);
  }
  const auto file = choose_hub_file(kListing, {"org/repo", ""});
  EXPECT_EQ(file->bytes, 400u);
  EXPECT_EQ(file->sha256, "44");
}

TEST(HubRepo, FallsBackInTheUsualOrder) {
  EXPECT_EQ(choose_hub_file(R"([{"path":"m-Q2_K.gguf"},{"path":"m-Q8_0.gguf"}])", {"o/r", ""})->path, "m-Q8_0.gguf");
  EXPECT_EQ(choose_hub_file(R"([{"path":"m-Q2_K.gguf"},{"path":"m-Q3_K.gguf"}])", {"o/r", ""})->path, "m-Q2_K.gguf");
}

TEST(HubRepo, SaysWhatIsThere) {
  const auto missing = choose_hub_file(kListing, {"org/repo", "Q4_K"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("model-q4_k_m.gguf"));
  EXPECT_EQ(choose_hub_file(kListing, {"org/repo", "Q2_K"}).error().code, ErrorCode::not_found);
  EXPECT_EQ(choose_hub_file(kListing, {"org/repo", "Q6_K"}).error().code, ErrorCode::unsupported);
  EXPECT_THAT(choose_hub_file("[]", {"org/repo", ""}).error().message, HasSubstr("no GGUF"));
  EXPECT_EQ(choose_hub_file("<html>", {"org/repo", ""}).error().code, ErrorCode::network);
}

TEST(HubRepo, Addresses) {
  EXPECT_EQ(hub_file_url("https://huggingface.co/", "org/repo", "main", "a b/m.gguf"),
            "https://huggingface.co/org/repo/resolve/main/a%20b/m.gguf");
}

}  // namespace
}  // namespace nanomind
