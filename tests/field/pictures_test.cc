// SPDX-License-Identifier: Apache-2.0
// Field cases of pictures (docs/field-cases.md), on tiny random models that see, through the public interface; pictures
// are those of tests/data/pictures, with what Pillow or the definition makes of them as PPM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "media/decode.h"
#include "models/vision.h"
#include "runtime/engine.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

const std::string kFamilies[] = {"gemma3",      "idefics3",   "llava",   "llava_onevision",
                                 "minicpmv4_6", "qwen2_5_vl", "qwen3_vl"};

std::string read(const std::string& name) {
  std::ifstream stream("tests/data/pictures/" + name, std::ios::binary);
  EXPECT_TRUE(stream) << name;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// A picture of one colour, as PPM.
std::string square(int width, int height, Rgb color) {
  std::string file = "P6 " + std::to_string(width) + " " + std::to_string(height) + " 255\n";
  for (int i = 0; i < width * height; ++i) file += {char(color.red), char(color.green), char(color.blue)};
  return file;
}

constexpr Rgb kRed{255, 0, 0}, kBlue{0, 0, 255}, kGray{127, 127, 127};

class PictureFieldCases : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nanomind-picture-field-test-" + std::to_string(::getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Engine> load(const std::string& family) const {
    auto engine = Engine::load({.model = "tests/data/vision/tiny-" + family + ".gguf",
                                .packed_folder = folder_,
                                .vision = "tests/data/vision/mmproj-tiny-" + family + ".gguf",
                                .threads = 2,
                                .context = 2048});
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }
  static VisionModel vision(const std::string& family) {
    const auto file = GgufFile::open("tests/data/vision/mmproj-tiny-" + family + ".gguf");
    EXPECT_TRUE(file) << file.error().message;
    return std::move(*build_vision(*file));
  }
  static SeenPicture see(Engine& engine, std::string_view file, const PictureDetail& detail = {}) {
    auto seen = engine.see(bytes(file), detail);
    EXPECT_TRUE(seen) << seen.error().message;
    return std::move(*seen);
  }
  static std::vector<TokenId> prompt(Engine& engine, const std::vector<std::string>& files, std::string question) {
    Message message{.role = "user", .content = std::move(question)};
    for (const std::string& file : files) message.pictures.push_back(see(engine, file).prompt);
    auto made = engine.chat_prompt({&message, 1}, {});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(made->tokens);
  }
  // After a question about a picture, in a session of its own.
  static std::vector<float> logits(Engine& engine, const std::string& file) {
    const auto session = std::move(*engine.open_session());
    const auto fed = session->feed(prompt(engine, {file}, "What is this?"), nullptr);
    EXPECT_TRUE(fed) << fed.error().message;
    return {session->logits().begin(), session->logits().end()};
  }
  static Result<Generation> answer(Session& session, std::span<const TokenId> prompt) {
    return session.generate(
        prompt, {.sampler = {.temperature = 0}, .max_tokens = 2, .end_tokens = GenerateOptions::EndTokens::ignore});
  }

  std::filesystem::path folder_;
};

TEST_F(PictureFieldCases, Img01PicturesAreSeenUpright) {
  const auto engine = load("idefics3");
  const std::vector<float> upright = logits(*engine, read("arrow.ppm"));
  EXPECT_NE(logits(*engine, read("scene.ppm")), upright);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const std::string kind : {".png", ".webp"}) {
      const std::string name = "arrow" + std::to_string(orientation) + kind;
      EXPECT_EQ(logits(*engine, read(name)), upright) << name;
    }
    // Edges of a JPEG ring a little, otherwise for each way to store it.
    EXPECT_EQ(see(*engine, read("arrow" + std::to_string(orientation) + ".jpg")).size, (Size{64, 32})) << orientation;
  }
}

TEST_F(PictureFieldCases, Img03WhatIsTransparentIsWhite) {
  const auto engine = load("idefics3");
  for (const auto& [name, flattened] : {std::pair<std::string, std::string>{"rgba8.png", "rgba.ppm"},
                                        {"rgba16.png", "rgba.ppm"},
                                        {"rgba.webp", "rgba.ppm"},
                                        {"gray-alpha8.png", "gray-alpha.ppm"},
                                        {"palette4-alpha.png", "palette4-alpha.ppm"},
                                        {"rgb8-key.png", "rgb8-key.ppm"}})
    EXPECT_EQ(logits(*engine, read(name)), logits(*engine, read(flattened))) << name;
}

TEST_F(PictureFieldCases, Img04TinyAndExtremePicturesAreAnswered) {
  constexpr Size kSizes[] = {{1, 1}, {1, 4096}, {4096, 1}, {27, 27}, {27, 257}, {28, 28}, {13, 9999}};
  for (const std::string& family : kFamilies) {
    const auto engine = load(family);
    const auto session = std::move(*engine->open_session());
    for (const Size size : kSizes) {
      SCOPED_TRACE(family + " " + std::to_string(size.width) + " x " + std::to_string(size.height));
      const std::string file = square(size.width, size.height, kGray);
      EXPECT_TRUE(answer(*session, prompt(*engine, {file}, "What is this?")));
      EXPECT_TRUE(answer(*session, prompt(*engine, {}, "Hello")));
    }
  }
}

TEST_F(PictureFieldCases, Img07EachPictureIsAnsweredForItself) {
  for (const std::string& family : kFamilies) {
    SCOPED_TRACE(family);
    const auto engine = load(family);
    const std::string red = square(32, 32, kRed), blue = square(32, 32, kBlue);
    EXPECT_NE(logits(*engine, red), logits(*engine, blue));
    EXPECT_EQ(logits(*engine, red), logits(*engine, red));
    const auto session = std::move(*engine->open_session());
    const auto cached = [&](const std::string& file) {
      const auto tokens = prompt(*engine, {file}, "Which colour?");
      const auto generation = answer(*session, tokens);
      EXPECT_TRUE(generation) << generation.error().message;
      const auto picture = std::ranges::find_if(tokens, [](TokenId token) { return token < 0; });
      const bool whole = generation->cached_tokens + 1 >= static_cast<int64_t>(tokens.size());
      EXPECT_TRUE(whole || generation->cached_tokens <= picture - tokens.begin()) << generation->cached_tokens;
      return whole;
    };
    EXPECT_FALSE(cached(red));
    EXPECT_FALSE(cached(blue));
    // Models with a recurrent state go back to where a turn ended, not to any place.
    EXPECT_TRUE(cached(blue) || family == "minicpmv4_6");
    EXPECT_FALSE(cached(red));
    // A second question about the same picture reads only what is new.
    std::vector<Message> messages{{.role = "user", .content = "Which colour?", .pictures = {see(*engine, red).prompt}},
                                  {.role = "assistant", .content = "Red."},
                                  {.role = "user", .content = "Really?"}};
    const auto first = std::move(engine->chat_prompt({messages.data(), 1}, {})->tokens);
    ASSERT_TRUE(session->feed(first, nullptr));
    const auto more = answer(*session, engine->chat_prompt(messages, {})->tokens);
    ASSERT_TRUE(more) << more.error().message;
    if (family == "minicpmv4_6") continue;  // keeps its state where the next turn begins, which feed is not told
    EXPECT_GT(more->cached_tokens, see(*engine, red).rows);
  }
}

TEST_F(PictureFieldCases, Img09ABadPictureLeavesTheConversationAlone) {
  const auto engine = load("idefics3");
  const auto session = std::move(*engine->open_session());
  const auto tokens = prompt(*engine, {square(32, 32, kRed)}, "What is this?");
  const auto before = answer(*session, tokens);
  ASSERT_TRUE(before);
  const std::string jpeg = read("420.jpg");
  const std::tuple<std::string, ErrorCode, std::string> bad[] = {
      {jpeg.substr(0, jpeg.size() / 2), ErrorCode::corrupt, "ends too early"},
      {"", ErrorCode::invalid_argument, "empty"},
      {"<!DOCTYPE html><html></html>", ErrorCode::unsupported, "HTML"},
      {"What?", ErrorCode::unsupported, "not a picture"}};
  for (const auto& [file, code, words] : bad) {
    const auto seen = engine->see(bytes(file));
    ASSERT_FALSE(seen);
    EXPECT_EQ(seen.error().code, code);
    EXPECT_THAT(seen.error().message, HasSubstr(words));
    const auto after = answer(*session, tokens);
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ(after->tokens, before->tokens);
  }
}

TEST_F(PictureFieldCases, Img10KindsThatAreNotReadAreNamed) {
  using namespace std::string_literals;
  const auto engine = load("idefics3");
  for (const auto& [file, name] : {std::pair{"\0\0\0\x18"
                                             "ftypheic\0\0\0\0mif1heic"s,
                                             "HEIC"},
                                   {"\0\0\0\x18"
                                    "ftypavif\0\0\0\0mif1avif"s,
                                    "AVIF"},
                                   {"II*\0\x08\0\0\0"s, "TIFF"},
                                   {"<svg xmlns='http://www.w3.org/2000/svg'></svg>"s, "SVG"}}) {
    const auto seen = engine->see(bytes(file));
    ASSERT_FALSE(seen) << name;
    EXPECT_EQ(seen.error().code, ErrorCode::unsupported);
    EXPECT_THAT(seen.error().message, HasSubstr(name));
    EXPECT_THAT(seen.error().message, HasSubstr("PNG"));
  }
}

int most_difference(const std::string& name, const std::string& expected) {
  const auto image = decode_image(bytes(read(name))), other = decode_image(bytes(read(expected)));
  EXPECT_TRUE(image && other) << name;
  if (!image || !other || image->size != other->size) return 256;
  int most = 0;
  for (size_t i = 0; i < image->pixels.size(); ++i)
    most = std::max(most, std::abs(int{image->pixels[i]} - int{other->pixels[i]}));
  return most;
}

TEST_F(PictureFieldCases, Img12PrintersColoursAreNotInverted) {
  const auto engine = load("idefics3");
  EXPECT_EQ(logits(*engine, read("cmyk.jpg")), logits(*engine, read("cmyk-no-adobe.jpg")));
  EXPECT_LE(most_difference("cmyk.jpg", "cmyk.ppm"), 1);
  EXPECT_LE(most_difference("ycck.jpg", "ycck.ppm"), 1);
}

TEST_F(PictureFieldCases, Img13AllKindsOfPngAndJpegAreRead) {
  const auto engine = load("idefics3");
  for (const auto& [name, expected] : {std::pair<std::string, std::string>{"gray1.png", "gray1.ppm"},
                                       {"gray2.png", "gray2.ppm"},
                                       {"gray4.png", "gray4.ppm"},
                                       {"gray8.png", "gray8.ppm"},
                                       {"gray16.png", "gray8.ppm"},
                                       {"rgb8.png", "scene.ppm"},
                                       {"rgb16.png", "scene.ppm"},
                                       {"rgb8-interlaced.png", "scene.ppm"},
                                       {"palette1.png", "palette1.ppm"},
                                       {"palette2.png", "palette2.ppm"},
                                       {"palette4.png", "palette4.ppm"},
                                       {"palette4-interlaced.png", "palette4.ppm"},
                                       {"palette8.png", "palette8.ppm"}})
    EXPECT_EQ(logits(*engine, read(name)), logits(*engine, read(expected))) << name;
  for (const std::string name : {"progressive.jpg", "arithmetic.jpg", "restart.jpg"}) {
    EXPECT_EQ(logits(*engine, read(name)).size(), logits(*engine, read("420.ppm")).size());
    EXPECT_LE(most_difference(name, "420.ppm"), 1) << name;
  }
}

TEST_F(PictureFieldCases, Img15MarkersInAQuestionAreText) {
  for (const std::string& family : kFamilies) {
    const auto engine = load(family);
    const auto session = std::move(*engine->open_session());
    const std::string pictures[] = {square(32, 32, kRed), square(32, 32, kBlue)};
    for (const std::string marker : {"<__media__>", "<image>", "<|image_pad|>", "<start_of_image>",
                                     "<|vision_start|><|image_pad|><|vision_end|>", "[picture-0:0]"}) {
      const auto length =
          static_cast<int64_t>(engine->tokenizer().encode(marker, ControlTokens::as_text, Beginning::omit).size());
      for (size_t count = 0; count <= 2; ++count) {
        SCOPED_TRACE(family + " " + marker + " " + std::to_string(count));
        const std::vector<std::string> files(pictures, pictures + count);
        const auto tokens = prompt(*engine, files, "What is `" + marker + "`?");
        auto without = prompt(*engine, files, "What is ``?");
        EXPECT_NEAR(static_cast<double>(tokens.size()), static_cast<double>(without.size()) + length, 3);
        // Pictures are where they are without it, and what follows is the text.
        const auto last = std::find_if(without.rbegin(), without.rend(), [](TokenId token) { return token < 0; });
        const auto shared = static_cast<size_t>(without.rend() - last);
        EXPECT_TRUE(std::ranges::equal(std::span(tokens).first(shared), std::span(without).first(shared)));
        std::string text;
        for (const TokenId token : std::span(tokens).subspan(shared)) text += engine->tokenizer().bytes(token);
        EXPECT_THAT(text, HasSubstr("`" + marker + "`"));
        EXPECT_TRUE(answer(*session, tokens));
      }
    }
  }
}

TEST_F(PictureFieldCases, Img16PicturesAreCutTheSameWayAndNotIntoMoreThanSaid) {
  constexpr Size kSizes[] = {{1, 1},     {64, 64},   {100, 40},  {224, 224},   {640, 480},
                             {480, 640}, {1000, 50}, {900, 700}, {1300, 1000}, {17, 3000}};
  for (const std::string& family : kFamilies) {
    const VisionModel model = vision(family);
    for (const Size size : kSizes) {
      SCOPED_TRACE(family + " " + std::to_string(size.width) + " x " + std::to_string(size.height));
      Image picture(size);
      fill(picture, kGray);
      const CutPicture first = model.cut(picture, {});
      for (int i = 0; i < 3; ++i) EXPECT_EQ(model.cut(picture, {}).tiles, first.tiles);
      for (const int most : {0, 1, 4, 64}) {
        const size_t tiles = model.cut(picture, {.most_tiles = most}).tiles.size();
        EXPECT_LE(tiles, static_cast<size_t>(1 + most));
        EXPECT_LE(tiles, first.tiles.size());
      }
      for (const Image& tile : first.tiles) {
        const int64_t rows = tile.size.height / model.patch_size, columns = tile.size.width / model.patch_size;
        EXPECT_LE(rows * columns, model.most_patches);
      }
      EXPECT_LE(first.tiles.size(), 17U);  // 4 x 4 and the whole
    }
  }
}

// What LLaVA pads with, so that it takes no part in the middle of what is darker.
constexpr Rgb kCanvas{122, 116, 104};

std::pair<double, double> dark_middle(const Image& tile) {
  double sum = 0, x_sum = 0, y_sum = 0;
  for (int y = 0; y < tile.size.height; ++y) {
    for (int x = 0; x < tile.size.width; ++x) {
      const double weight = kCanvas.red - tile.row(y)[3 * x];  // below 0 where a filter overshoots
      sum += weight;
      x_sum += weight * (x + 0.5);
      y_sum += weight * (y + 0.5);
    }
  }
  return {x_sum / sum, y_sum / sum};
}

TEST_F(PictureFieldCases, Img19PlacesOfTilesLeadBackToTheOriginal) {
  Image picture({1000, 500});
  fill(picture, kCanvas);
  constexpr double kX = 700, kY = 340;
  for (int y = 300; y < 380; ++y) {
    for (int x = 660; x < 740; ++x) std::fill_n(picture.row(y) + 3 * x, 3, uint8_t{10});
  }
  for (const std::string& family : kFamilies) {
    const CutPicture cut = vision(family).cut(picture, {});
    ASSERT_EQ(cut.places.size(), cut.tiles.size());
    int found = 0;
    for (size_t i = 0; i < cut.tiles.size(); ++i) {
      const TilePlace& place = cut.places[i];
      const auto on_tile = [&](double x, double y) {
        return std::pair((x - place.left) * place.scale_x, (y - place.top) * place.scale_y);
      };
      const auto [left, top] = on_tile(600, 240);
      const auto [right, bottom] = on_tile(800, 440);
      if (left < 0 || top < 0 || right > cut.tiles[i].size.width || bottom > cut.tiles[i].size.height) continue;
      const auto [x, y] = dark_middle(cut.tiles[i]);
      EXPECT_NEAR(x / place.scale_x + place.left, kX, 1) << family << " tile " << i << " of scale " << place.scale_x;
      EXPECT_NEAR(y / place.scale_y + place.top, kY, 1) << family << " tile " << i << " of scale " << place.scale_y;
      ++found;
    }
    EXPECT_GE(found, 1) << family;
    // What an engine tells is the same.
    const auto engine = load(family);
    std::string file = "P6 1000 500 255\n";
    file.append(picture.pixels.begin(), picture.pixels.end());
    const SeenPicture seen = see(*engine, file);
    EXPECT_EQ(seen.size, picture.size);
    ASSERT_EQ(seen.tiles.size(), cut.places.size());
    for (size_t i = 0; i < seen.tiles.size(); ++i) EXPECT_EQ(seen.tiles[i].left, cut.places[i].left);
  }
}

// Whoever shows them: a person, or a tool in its result.
TEST_F(PictureFieldCases, Img21PicturesOfAnyRoleAreSeen) {
  for (const std::string& family : kFamilies) {
    const auto engine = load(family);
    const SeenPicture seen = see(*engine, square(32, 32, kRed));
    for (const std::string role : {"user", "system", "assistant", "tool"}) {
      SCOPED_TRACE(family + " " + role);
      std::vector<Message> messages{{.role = "user", .content = "Look."},
                                    {.role = "assistant", .content = "I do."},
                                    {.role = role, .content = "Here.", .pictures = {seen.prompt}}};
      if (role != "user") messages.push_back({.role = "user", .content = "What is it?"});
      const auto prompt = engine->chat_prompt(messages, {});
      ASSERT_TRUE(prompt) << prompt.error().message;
      std::vector<TokenId> rows;
      std::ranges::copy_if(prompt->tokens, std::back_inserter(rows), [](TokenId token) { return token < 0; });
      EXPECT_EQ(static_cast<int64_t>(rows.size()), seen.rows);
    }
  }
}

TEST_F(PictureFieldCases, Qual06LargePicturesAreLookedAtInParts) {
  Image screenshot({1200, 900});
  fill(screenshot, kGray);
  for (const std::string family : {"idefics3", "llava_onevision", "minicpmv4_6"}) {
    const VisionModel model = vision(family);
    const auto scale = [&](const PictureDetail& detail) {
      const CutPicture cut = model.cut(screenshot, detail);
      return std::ranges::max(cut.places, {}, &TilePlace::scale_x).scale_x;
    };
    EXPECT_GE(scale({}), 2 * scale({.most_tiles = 0})) << family;
  }
}

}  // namespace
}  // namespace nanomind
