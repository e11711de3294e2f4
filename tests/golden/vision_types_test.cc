// SPDX-License-Identifier: Apache-2.0
// Quantised vision files run, and what they make of pictures stays near what the F16 file makes, by the bits that they
// have (docs/quantize.md). On the tiny random MiniCPM-V, nearly all of whose rows divide into blocks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "convert/quantize.h"
#include "device/registry.h"
#include "media/decode.h"
#include "models/vision.h"
#include "runtime/engine.h"
#include "runtime/vision_encoder.h"
#include "tests/support/difference.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

class VisionTypes : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path quantized(const fs::path& source, const std::string& type, const TypeChoice& choice) const {
    const fs::path target = folder_ / (type + "-" + source.filename().string());
    ThreadPool pool(2);
    const auto made = quantize_file(source, target, choice, {.pool = pool});
    EXPECT_TRUE(made) << made.error().message;
    EXPECT_GT(made->changed, 0U);
    return target;
  }
  fs::path quantized(const fs::path& source, const std::string& type) const {
    return quantized(source, type, {.mix = parse_mix(type).value()});
  }

  // All rows of a picture's tiles.
  std::vector<float> rows_of(const fs::path& vision) const {
    const auto file = GgufFile::open(vision);
    const auto model = build_vision(*file);
    EXPECT_TRUE(model) << model.error().message;
    const auto device = std::move(*open_device("cpu", {.threads = 2}));
    const auto encoder =
        VisionEncoder::load(*device, *file, *model,
                            {.file = vision, .packed_folder = folder_, .precision = PromptPrecision::high, .log = {}});
    EXPECT_TRUE(encoder) << encoder.error().message;
    const auto bytes = MappedFile::open("tests/data/vision/200x150.png");
    const auto cut = model->cut(*decode_image(bytes->bytes()), {});
    EXPECT_GT(cut.tiles.size(), 1U);
    std::vector<std::unique_ptr<std::vector<float>>> pieces;
    const auto room = [&](int64_t count) -> Result<std::span<float>> {
      pieces.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(count * model->width)));
      return *pieces.back();
    };
    for (const Image& tile : cut.tiles) EXPECT_TRUE((*encoder)->encode(tile, room, nullptr));
    std::vector<float> rows;
    for (const auto& piece : pieces) rows.insert(rows.end(), piece->begin(), piece->end());
    return rows;
  }

  fs::path folder_ = fs::temp_directory_path() / ("nanomind-vision-types-" + std::to_string(::getpid()));
};

constexpr const char* kText = "tests/data/vision/tiny-minicpmv4_6.gguf";
constexpr const char* kVision = "tests/data/vision/mmproj-tiny-minicpmv4_6.gguf";

TEST_F(VisionTypes, CostRowsNoMoreThanTheirBits) {
  const std::vector<float> reference = rows_of(kVision);
  const auto cost = [&](const char* type) {
    const double share = testing::relative_difference(rows_of(quantized(kVision, type)), reference);
    RecordProperty(type, std::to_string(share));
    return share;
  };
  // Errors of weights (docs/quantize.md has those of each type) meet in four blocks, a merger and the projector.
  const double q8 = cost("q8_0"), q5 = cost("q5_0"), q4 = cost("q4_0"), mix = cost("q4_k_m");
  EXPECT_GT(q8, 0);
  EXPECT_LT(q8, 0.03);
  EXPECT_LT(q8 * 4, q5);
  EXPECT_LT(q5, q4);
  EXPECT_LT(q4, 0.3);
  EXPECT_LT(mix, q4);  // 32 columns are no super-block, and what stands for it has five bits
}

// The recipe of docs/quantize.md: each brick in its own type, and the two files together answer.
TEST_F(VisionTypes, BricksHaveTypesOfTheirOwn) {
  const fs::path vision = quantized(kVision, "q8_0");
  const fs::path text = quantized(kText, "q4_k_m", {.mix = parse_mix("q4_k_m").value(), .head = DType::q8_0});
  const auto engine =
      Engine::load({.model = text, .packed_folder = folder_, .vision = vision, .threads = 2, .context = 1024});
  ASSERT_TRUE(engine) << engine.error().message;
  const auto bytes = MappedFile::open("tests/data/vision/200x150.png");
  auto seen = (*engine)->see(bytes->bytes(), {});
  ASSERT_TRUE(seen) << seen.error().message;
  std::vector<Message> messages{{.role = "user", .content = "What is it?"}};
  messages[0].pictures.push_back(std::move(seen->prompt));
  const auto prompt = (*engine)->chat_prompt(messages, {.tools = {}, .thinking = false});
  ASSERT_TRUE(prompt) << prompt.error().message;
  const auto session = std::move(*(*engine)->open_session());
  const auto answer = session->generate(
      prompt->tokens,
      {.sampler = {.temperature = 0}, .max_tokens = 4, .end_tokens = GenerateOptions::EndTokens::ignore});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->tokens.size(), 4U);
}

}  // namespace
}  // namespace nanomind
