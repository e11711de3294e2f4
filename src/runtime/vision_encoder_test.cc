// SPDX-License-Identifier: Apache-2.0
// The vision model of models/tinyvision against the values of its card (PyTorch in float32 on the weights before they
// were quantised), on every instruction set; files that do not fit; pictures as tokens.
#include "runtime/vision_encoder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "device/registry.h"
#include "media/decode.h"
#include "runtime/picture_places.h"
#include "runtime/pictures.h"

namespace nanomind {
namespace {

const std::filesystem::path kModel = "models/tinyvision";
// What Q8_0 weights alone move these rows by: the card tells 0.0143 of llama.cpp on this file.
constexpr double kTolerance = 0.02;

class VisionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-vision-test-" + std::to_string(::getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Result<std::unique_ptr<VisionEncoder>> load(Device& device, int64_t width = 576) const {
    return VisionEncoder::load(device, {.file = kModel / "mmproj-tinyvision-smollm2-135m-q8_0.gguf",
                                        .packed_folder = folder_,
                                        .model = "the language model",
                                        .model_width = width});
  }
  std::filesystem::path folder_;
};

TEST_F(VisionTest, RowsAreThoseOfTheCard) {
  std::ifstream file(kModel / "samples.json");
  const auto card = nlohmann::json::parse(file);
  int checked = 0;
  for (const char* isa : {"scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"}) {
    const auto device = open_device("cpu", {.threads = 2, .isa = isa});
    if (!device) continue;
    const auto encoder = load(**device);
    ASSERT_TRUE(encoder) << encoder.error().message;
    for (const auto& golden : card["embedding_golden"]) {
      const auto picture = MappedFile::open(kModel / golden["file"].get<std::string>());
      const auto image = decode_image(picture->bytes());
      ASSERT_TRUE(image) << image.error().message;
      std::vector<float> rows(36 * 576);
      ASSERT_TRUE((*encoder)->encode(*image, rows, nullptr));
      for (size_t i = 0; i < 4; ++i) {
        for (size_t c = 0; c < 8; ++c)
          EXPECT_NEAR(rows[i * 576 + c], golden["first4x8"][i][c].get<float>(), kTolerance) << isa;
      }
      double squares = 0;
      for (const float v : rows) squares += static_cast<double>(v) * v;
      EXPECT_NEAR(std::sqrt(squares), golden["l2_norm_of_all"].get<double>(), 0.1) << isa;
      ++checked;
    }
  }
  EXPECT_GE(checked, 4);
}

TEST_F(VisionTest, AnotherModelsEyesAreRefusedWithBothWidths) {
  const auto device = std::move(*open_device("cpu", {.threads = 1}));
  const auto refused = load(*device, 896);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("576"), std::string::npos);
  EXPECT_NE(refused.error().message.find("896"), std::string::npos);
  const auto text = VisionEncoder::load(*device, {.file = "tests/data/tiny-llama.gguf", .packed_folder = folder_});
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("llama"), std::string::npos);
}

Sha256Digest source(uint8_t i) { return {i}; }

TEST(Pictures, ThoseUsedLastAreKeptUnderTokensOfTheirOwn) {
  Pictures pictures(3 * 4 * sizeof(float) * 2);  // two pictures of three rows
  const auto rows = [](float value) { return std::vector<float>(12, value); };
  const auto one = pictures.add(source(1), rows(1), 4), two = pictures.add(source(2), rows(2), 4);
  EXPECT_EQ(one, (std::vector<TokenId>{-1, -2, -3}));
  EXPECT_EQ(two, (std::vector<TokenId>{-4, -5, -6}));
  EXPECT_EQ(pictures.find(source(1)), one);
  const auto three = pictures.add(source(3), rows(3), 4);
  EXPECT_TRUE(pictures.find(source(2)).empty());
  std::vector<const float*> found;
  EXPECT_TRUE(pictures.append_rows(std::vector<TokenId>{5, -3, -9, 7}, found));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0][0], 1);
  EXPECT_EQ(found[1][0], 3);
  EXPECT_FALSE(pictures.append_rows(std::vector<TokenId>{-4}, found));
  EXPECT_FALSE(pictures.append_rows(std::vector<TokenId>{-10}, found));
  // It has the tokens that it had, so that prefixes with it are still good.
  EXPECT_EQ(pictures.add(source(2), rows(2), 4), two);
}

TEST(PicturePlaces, PicturesStandBeforeTheirMessages) {
  const auto file = GgufFile::open("tests/data/tiny-llama.gguf");
  ASSERT_TRUE(file);
  const auto tokenizer = std::move(*make_tokenizer(*file));
  const auto encode = [&](std::string_view text) {
    return tokenizer->encode(text, ControlTokens::recognise, Beginning::omit);
  };
  // What a person writes is never taken for a picture, even if it looks like the mark of one.
  const std::vector<Message> messages{{.role = "user", .content = "[picture-0:1]?", .pictures = {{-1, -2}, {-3}}},
                                      {.role = "user", .content = "and?", .pictures = {{-1, -2}}}};
  const PicturePlaces places(messages);
  const std::string text = "A:" + places.messages()[0].content + "B:" + places.messages()[1].content;
  std::vector<TokenId> expected = encode("A:");
  const auto append = [&](const std::vector<TokenId>& more) {
    expected.insert(expected.end(), more.begin(), more.end());
  };
  append({-1, -2, -3});
  append(encode("[picture-0:1]?B:"));
  append({-1, -2});
  append(encode("and?"));
  EXPECT_EQ(places.encode(*tokenizer, text, Beginning::omit), expected);
}

}  // namespace
}  // namespace nanomind
