// SPDX-License-Identifier: Apache-2.0
// Names as publishers have them; what belongs together is known from their repositories.
#include "hub/vision_pair.h"

#include <gtest/gtest.h>

#include <vector>

#include "hub/test_support.h"

namespace nanomind {
namespace {

std::string chosen(std::string_view model, const std::vector<std::string>& files) {
  return choose_vision_file(model, files).value_or("none");
}

TEST(VisionPair, VisionFilesAreToldByTheirName) {
  for (const std::string_view name : {"mmproj.gguf", "mmproj-model-f16.gguf", "a/b/MMPROJ-x.gguf",
                                      "gemma-3-4b-it.F16-mmproj.gguf", "llava-mmproj-model-f16.gguf"})
    EXPECT_TRUE(is_vision_file(name)) << name;
  for (const std::string_view name : {"model.gguf", "mmproj/model.gguf", "mmproj-x.safetensors", ""})
    EXPECT_FALSE(is_vision_file(name)) << name;
}

TEST(VisionPair, TheOnlyOneIsTakenWhateverItsName) {
  EXPECT_EQ(chosen("model.gguf", {"model.gguf", "mmproj.gguf"}), "mmproj.gguf");
  EXPECT_EQ(chosen("vicuna-7b.Q4_K.gguf", {"vicuna-7b.Q4_K.gguf", "mmproj-llava-f16.gguf"}), "mmproj-llava-f16.gguf");
  EXPECT_EQ(chosen("SmolLM2-135M-Instruct.Q4_1.gguf",
                   {"SmolLM2-135M-Instruct.Q4_1.gguf", "mmproj-tinyvision-smollm2-135m-q8_0.gguf"}),
            "mmproj-tinyvision-smollm2-135m-q8_0.gguf");
  EXPECT_EQ(chosen("model.gguf", {"model.gguf", "readme.md"}), "none");
}

TEST(VisionPair, OfSeveralTypesTheModelsOwnThenTheUsualOrder) {
  std::vector<std::string> files = {"x-Q8_0.gguf",   "x-Q4_K_M.gguf",      "mmproj-x-F32.gguf", "mmproj-x-BF16.gguf",
                                    "x-UD-F16.gguf", "mmproj-x-Q8_0.gguf", "mmproj-x-F16.gguf", "mmproj-x-Q4_K_M.gguf"};
  EXPECT_EQ(chosen("x-Q4_K_M.gguf", files), "mmproj-x-Q4_K_M.gguf");
  EXPECT_EQ(chosen("x-Q8_0.gguf", files), "mmproj-x-Q8_0.gguf");
  EXPECT_EQ(chosen("x-Q6_K.gguf", files), "mmproj-x-Q8_0.gguf");
  std::erase(files, "mmproj-x-Q8_0.gguf");
  EXPECT_EQ(chosen("x-Q6_K.gguf", files), "mmproj-x-F16.gguf");
  std::erase(files, "mmproj-x-F16.gguf");
  EXPECT_EQ(chosen("x-Q6_K.gguf", files), "mmproj-x-BF16.gguf");
}

TEST(VisionPair, Img18AMixedFolderGivesEachModelItsOwn) {
  const std::vector<std::string> files = {"SmolVLM-500M-Instruct-Q8_0.gguf", "mmproj-SmolVLM-500M-Instruct-Q8_0.gguf",
                                          "SmolVLM-256M-Instruct-Q8_0.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                                          "mmproj-SmolVLM-500M-Instruct-f16.gguf"};
  EXPECT_EQ(chosen("SmolVLM-500M-Instruct-Q8_0.gguf", files), "mmproj-SmolVLM-500M-Instruct-Q8_0.gguf");
  EXPECT_EQ(chosen("SmolVLM-256M-Instruct-Q8_0.gguf", files), "none");
  EXPECT_EQ(chosen("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", files), "none");
}

TEST(VisionPair, OneThatNamesNoModelComesBeforeOneOfASibling) {
  EXPECT_EQ(chosen("gemma-3-4b-it-Q4_K_M.gguf",
                   {"gemma-3-4b-it-Q4_K_M.gguf", "mmproj-gemma-3-12b-it-f16.gguf", "mmproj-model-f16.gguf"}),
            "mmproj-model-f16.gguf");
  EXPECT_EQ(chosen("gemma-3-4b-it-Q4_K_M.gguf",
                   {"gemma-3-4b-it-Q4_K_M.gguf", "mmproj-gemma-3-4b-it-f16.gguf", "mmproj-model-f16.gguf"}),
            "mmproj-gemma-3-4b-it-f16.gguf");
}

TEST(VisionPair, TheNearestFolderComesFirst) {
  const std::vector<std::string> files = {"mmproj-x-f16.gguf", "q4/x-Q4_0.gguf", "q8/x-Q8_0.gguf",
                                          "q8/mmproj-f32.gguf"};
  EXPECT_EQ(chosen("q4/x-Q4_0.gguf", files), "mmproj-x-f16.gguf");
  EXPECT_EQ(chosen("q8/x-Q8_0.gguf", files), "q8/mmproj-f32.gguf");
}

TEST(VisionPair, IsFoundOnDisk) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "model.gguf", "x");
  EXPECT_EQ(vision_file_beside(folder / "model.gguf"), "");
  test::write_file(folder / "mmproj.gguf", "x");
  EXPECT_EQ(vision_file_beside(folder / "model.gguf"), folder / "mmproj.gguf");
  EXPECT_EQ(vision_file_beside(folder / "none/model.gguf"), "");
}

}  // namespace
}  // namespace nanomind
