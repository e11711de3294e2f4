// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_file.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

const Conversation kTalk{
    .model = "m",
    .system = "be \"brief\"",
    .turns = {{.message = {"user", "a\nb"},
               .pictures = {{.file = {std::byte{0xFF}, std::byte{0}}, .detail = {}},
                            {.file = {}, .detail = {.most_tiles = 0, .company = PictureDetail::Company::several}}}},
              {.message = {"assistant", "caf\xC3\xA9"}}}};

TEST(ChatFile, WhatIsSavedIsLoaded) {
  const auto path = std::filesystem::path(testing::TempDir()) / "nanomind_chat_file_test.json";
  ASSERT_TRUE(save_conversation(kTalk, path));
  const auto loaded = load_conversation(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->model, "m");
  EXPECT_EQ(loaded->system, "be \"brief\"");
  ASSERT_EQ(loaded->turns.size(), 2u);
  EXPECT_EQ(loaded->turns[0].message.content, "a\nb");
  EXPECT_EQ(loaded->turns[1].message.content, "caf\xC3\xA9");
  ASSERT_EQ(loaded->turns[0].pictures.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const KeptPicture &kept = loaded->turns[0].pictures[i], &expected = kTalk.turns[0].pictures[i];
    EXPECT_EQ(kept.file, expected.file);
    EXPECT_EQ(kept.detail, expected.detail);
  }
  EXPECT_TRUE(loaded->turns[1].pictures.empty());
}

TEST(ChatFile, RefusesWhatNoSaveWrote) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{\"a\":", "not a JSON object"},
      {"{}", "\"nanomind_chat\" is missing"},
      {R"({"nanomind_chat":2,"messages":[]})", "another version"},
      {R"({"nanomind_chat":1})", "\"messages\" is no list"},
      {R"({"nanomind_chat":1,"messages":[7]})", "message 1 has no text \"role\""},
      {R"({"nanomind_chat":1,"messages":[{"role":"user"}]})", "message 1 has no text \"content\""},
      {R"({"nanomind_chat":1,"messages":[{"role":"assistant","content":"x"}]})", "by \"assistant\" where \"user\""},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x"},{"role":"system","content":"y"}]})",
       "message 2 is by"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x"}]})", "no answer"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x","pictures":{}}]})", "pictures of message 1"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x","pictures":["Zg=="]}]})",
       "pictures of message 1"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x","pictures":[{"base64":"?"}]}]})",
       "message 1 are damaged"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x","pictures":[{"base64":"","most_tiles":-1}]}]})",
       "message 1 are damaged"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x","pictures":[{"base64":"","most_tiles":1e99}]}]})",
       "message 1 are damaged"},
      {R"({"nanomind_chat":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"x","pictures":[]}]})",
       "pictures of message 2"},
  };
  for (const auto& [json, why] : cases) {
    const auto conversation = parse_conversation(json, "f.json");
    ASSERT_FALSE(conversation) << json;
    EXPECT_EQ(conversation.error().code, ErrorCode::corrupt);
    EXPECT_NE(conversation.error().message.find(why), std::string::npos) << conversation.error().message;
    EXPECT_TRUE(conversation.error().message.starts_with("f.json"));
  }
}

TEST(ChatFile, FailedSaveNamesTheFile) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "nanomind_no_such_folder";
  const auto saved = save_conversation(kTalk, folder / "x.json");
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().message.find("x.json"), std::string::npos) << saved.error().message;
}

}  // namespace
}  // namespace nanomind
