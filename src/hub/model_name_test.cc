// SPDX-License-Identifier: Apache-2.0
#include "hub/model_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace nanomind {
namespace {

struct Case {
  std::string text;
  ModelName name;
};

TEST(ModelName, EveryFormIsTold) {
  const Case cases[] = {
      {"smollm2-135m", CatalogName{"smollm2-135m"}},
      {"Qwen2.5-Coder:0.5B", CatalogName{"qwen2.5-coder-0.5b"}},
      {"Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", HubName{"Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", ""}},
      {"org/repo:Q8_0", HubName{"org/repo", "Q8_0"}},
      {"org/repo:sub/model-q4.gguf", HubName{"org/repo", "sub/model-q4.gguf"}},
      {"hf.co/org/repo:Q4_K_M", HubName{"org/repo", "Q4_K_M"}},
      {"https://huggingface.co/org/repo", HubName{"org/repo", ""}},
      {"https://huggingface.co/org/repo/blob/main/a/b.gguf?x=1",
       UrlName{"https://huggingface.co/org/repo/resolve/main/a/b.gguf"}},
      {"https://example.org/m.gguf?key=1", UrlName{"https://example.org/m.gguf?key=1"}},
      {"./m", PathName{"./m"}},
      {"../m.gguf", PathName{"../m.gguf"}},
      {"/abs/m.gguf", PathName{"/abs/m.gguf"}},
      {"~/m.gguf", PathName{"~/m.gguf"}},
      {"m.gguf", PathName{"m.gguf"}},
      {"folder/M.GGUF", PathName{"folder/M.GGUF"}},
  };
  for (const Case& item : cases) {
    const auto name = parse_model_name(item.text);
    ASSERT_TRUE(name) << item.text << ": " << name.error().message;
    EXPECT_EQ(*name, item.name) << item.text;
    const auto again = parse_model_name(to_string(*name));
    ASSERT_TRUE(again) << item.text;
    EXPECT_EQ(*again, *name) << item.text;
  }
}

TEST(ModelName, WhatCannotBeANameIsRefused) {
  for (const std::string text : {"", "-rf", "a/b/c", "org/..", "../..:x/y:z\n", "org/repo:../x", "ftp://host/m.gguf",
                                 "https:///m.gguf", "two words", "a\x01", "org/repo:--config"}) {
    const auto name = parse_model_name(text);
    const bool refused = !name || std::holds_alternative<PathName>(*name);
    EXPECT_TRUE(refused) << text;
  }
  EXPECT_FALSE(parse_model_name("two words"));
  EXPECT_FALSE(parse_model_name("org/.."));
  EXPECT_FALSE(parse_model_name("org/repo:../x"));
}

TEST(ClosestName, FindsSlipsAndBeginningsOnly) {
  const std::vector<std::string_view> names = {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"};
  EXPECT_EQ(closest_name("smolm2-135m", names), "smollm2-135m");
  EXPECT_EQ(closest_name("qwen2.5-coder-1.5", names), "qwen2.5-coder-1.5b");
  EXPECT_EQ(closest_name("qwen", names), "qwen2.5-coder-0.5b");
  EXPECT_EQ(closest_name("something-else", names), std::nullopt);
}

}  // namespace
}  // namespace nanomind
