// SPDX-License-Identifier: Apache-2.0
// Tiny random models that see against transformers, which computed tests/golden/vision-*.json in float64 on the same
// weights (tools/golden/tiny_vision.py): tiles sample by sample, prompts token by token, rows, logits and answers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "device/registry.h"
#include "media/decode.h"
#include "runtime/engine.h"
#include "runtime/sight.h"

namespace nanomind {
namespace {

using nlohmann::json;

std::vector<float> floats_of_base64(std::string_view text) {
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> count));
  }
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

std::string hex_sha256(const std::vector<uint8_t>& bytes) { return hex(sha256(std::as_bytes(std::span(bytes)))); }

PictureDetail detail_of(const json& c) {
  return {.company = c["pictures"].size() > 1 ? PictureDetail::Company::several : PictureDetail::Company::alone};
}

class VisionGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file("tests/golden/vision-" + GetParam() + ".json");
    golden_ = json::parse(file);
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-vision-golden-" + std::to_string(::getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string mmproj() const { return golden_["mmproj"]; }

  Result<std::unique_ptr<Engine>> load(const std::string& isa) const {
    return Engine::load({.model = golden_["model"].get<std::string>(),
                         .packed_folder = folder_,
                         .vision = mmproj(),
                         .isa = isa,
                         .threads = 2,
                         .context = 2048,
                         .precision = PromptPrecision::high,
                         .kv_type = KvType::f32});
  }

  json golden_;
  std::filesystem::path folder_;
};

TEST_P(VisionGolden, TilesAreThoseOfTheProcessor) {
  const auto file = GgufFile::open(mmproj());
  ASSERT_TRUE(file) << file.error().message;
  const auto model = build_vision(*file);
  ASSERT_TRUE(model) << model.error().message;
  for (const json& c : golden_["cases"]) {
    std::vector<Image> tiles;
    for (const json& name : c["pictures"]) {
      const auto bytes = MappedFile::open(name.get<std::string>());
      ASSERT_TRUE(bytes);
      const auto image = decode_image(bytes->bytes());
      ASSERT_TRUE(image) << image.error().message;
      CutPicture cut = model->cut(*image, detail_of(c));
      EXPECT_EQ(cut.places.size(), cut.tiles.size());
      std::ranges::move(cut.tiles, std::back_inserter(tiles));
    }
    ASSERT_EQ(tiles.size(), c["tiles"].size()) << c["pictures"];
    for (size_t i = 0; i < tiles.size(); ++i) {
      const json& expected = c["tiles"][i];
      EXPECT_EQ(tiles[i].size, (Size{expected["width"], expected["height"]})) << c["pictures"] << " tile " << i;
      EXPECT_EQ(hex_sha256(tiles[i].pixels), expected["sha256"].get<std::string>()) << c["pictures"] << " tile " << i;
    }
  }
}

TEST_P(VisionGolden, RowsPromptsAndAnswersAreThoseOfTheReference) {
  int checked = 0;
  for (const std::string& isa : device_isas()) {
    const auto engine = load(isa);
    ASSERT_TRUE(engine) << engine.error().message;
    for (const json& c : golden_["cases"]) {
      SCOPED_TRACE(isa + " " + c["pictures"].dump());
      std::vector<Message> messages{{.role = "user", .content = c["question"]}};
      for (const json& name : c["pictures"]) {
        const auto bytes = MappedFile::open(name.get<std::string>());
        auto seen = (*engine)->see(bytes->bytes(), detail_of(c));
        ASSERT_TRUE(seen) << seen.error().message;
        messages[0].pictures.push_back(std::move(seen->prompt));
      }
      const auto prompt = (*engine)->chat_prompt(messages, {.tools = {}, .thinking = false});
      ASSERT_TRUE(prompt) << prompt.error().message;
      std::vector<TokenId> ids = prompt->tokens;
      for (TokenId& id : ids) id = std::max(id, -1);
      ASSERT_EQ(ids, c["ids"].get<std::vector<TokenId>>());
      const auto session = std::move(*(*engine)->open_session());
      const auto fed = session->feed(prompt->tokens, nullptr);
      ASSERT_TRUE(fed) << fed.error().message;
      const auto expected = c["last_logits"].get<std::vector<float>>();
      double worst = 0;
      for (size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(session->logits()[i]) - expected[i]));
      EXPECT_LT(worst, 5e-3);
      const auto answer = session->generate(
          prompt->tokens,
          {.sampler = {.temperature = 0}, .max_tokens = 8, .end_tokens = GenerateOptions::EndTokens::ignore});
      ASSERT_TRUE(answer) << answer.error().message;
      EXPECT_EQ(answer->tokens, c["greedy"].get<std::vector<TokenId>>());
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

TEST_P(VisionGolden, RowsAreThoseOfTheReference) {
  for (const std::string& isa : device_isas()) {
    const auto reader = std::move(*open_device("cpu", {.threads = 1, .isa = isa}));
    for (const json& c : golden_["cases"]) {
      SCOPED_TRACE(isa + " " + c["pictures"].dump());
      const auto expected = floats_of_base64(c["rows"].get<std::string>());
      const auto width = c["row_width"].get<int64_t>();
      auto sight = Sight::open(
          *reader,
          {.encoder = {.file = mmproj(), .packed_folder = folder_, .precision = PromptPrecision::high, .log = {}},
           .open_device = [&] { return open_device("cpu", {.threads = 2, .isa = isa}); },
           .step_rows = 64});
      ASSERT_TRUE(sight) << sight.error().message;
      std::vector<TokenId> tokens;
      for (const json& name : c["pictures"]) {
        const auto bytes = MappedFile::open(name.get<std::string>());
        const auto picture = (*sight)->see(bytes->bytes(), detail_of(c));
        ASSERT_TRUE(picture) << picture.error().message;
        for (int64_t i = 0; i < (*picture)->count; ++i) tokens.push_back((*picture)->first - static_cast<TokenId>(i));
      }
      ASSERT_EQ(tokens.size() * static_cast<size_t>(width), expected.size());
      (*sight)->expect(tokens, nullptr);
      double worst = 0, dot = 0, ours = 0, theirs = 0;
      for (size_t i = 0; i < tokens.size(); ++i) {
        std::vector<const float*> rows;
        const auto found = (*sight)->append_rows({&tokens[i], 1}, nullptr, rows);
        ASSERT_TRUE(found) << found.error().message;
        for (int64_t col = 0; col < width; ++col) {
          const double a = rows[0][col], b = expected[i * static_cast<size_t>(width) + static_cast<size_t>(col)];
          worst = std::max(worst, std::abs(a - b));
          dot += a * b;
          ours += a * a;
          theirs += b * b;
        }
        (*sight)->done();
      }
      (*sight)->end(nullptr);
      EXPECT_GT(dot / std::sqrt(ours * theirs), 0.999999);
      EXPECT_LT(worst / std::sqrt(theirs / static_cast<double>(expected.size())), 0.01);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, VisionGolden,
                         ::testing::Values("idefics3", "minicpmv4_6", "minicpmv4_6-4x", "llava_onevision", "gemma3",
                                           "qwen2_5_vl", "qwen3_vl", "llava"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nanomind
