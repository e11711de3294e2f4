// SPDX-License-Identifier: Apache-2.0
// Each vision file of tests/data with each language model: all tiny models of one width are siblings.
#include "runtime/vision_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace nanomind {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<void> match(const std::string& model, const std::string& vision) {
  const auto text = GgufFile::open("tests/data/vision/tiny-" + model + ".gguf");
  const auto eyes = GgufFile::open("tests/data/vision/mmproj-tiny-" + vision + ".gguf");
  EXPECT_TRUE(text && eyes);
  return check_match(*text, *eyes);
}

constexpr const char* kFamilies[] = {"gemma3",      "idefics3",   "llava",   "llava_onevision",
                                     "minicpmv4_6", "qwen2_5_vl", "qwen3_vl"};

// LLaVA's rows need nothing of a language model but its width.
TEST(VisionMatch, Img18SiblingsOfOneWidthAreToldApart) {
  const std::map<std::string, std::set<std::string>> also{
      {"llava", {"idefics3", "llava_onevision", "qwen2_5_vl"}},
      {"llava_onevision", {"idefics3", "llava", "qwen2_5_vl"}},
  };
  for (const std::string model : kFamilies) {
    for (const std::string vision : kFamilies) {
      const auto others = also.find(vision);
      const bool belongs = model == vision || (others != also.end() && others->second.contains(model));
      const auto matched = match(model, vision);
      EXPECT_EQ(matched.has_value(), belongs) << model << " with " << vision;
      if (!matched) {
        EXPECT_EQ(matched.error().code, ErrorCode::invalid_argument);
        EXPECT_THAT(matched.error().message,
                    AllOf(HasSubstr("/tiny-" + model + ".gguf"), HasSubstr("mmproj-tiny-" + vision + ".gguf"),
                          HasSubstr("do not belong together"), HasSubstr("--mmproj FILE")));
      }
    }
  }
  EXPECT_TRUE(match("minicpmv4_6", "minicpmv4_6-4x"));
}

TEST(VisionMatch, ErrorsSayAllThatDoesNotMatch) {
  EXPECT_THAT(match("gemma3", "idefics3").error().message,
              AllOf(HasSubstr("rows of 48 numbers"), HasSubstr("reads rows of 32"),
                    HasSubstr("<fake_token_around_image>, which is no token"),
                    HasSubstr("projector type idefics3, architecture gemma3")));
  EXPECT_THAT(match("idefics3", "qwen2_5_vl").error().message,
              AllOf(HasSubstr("in a plane"), HasSubstr("<|vision_start|>"), HasSubstr("<|vision_end|>"),
                    HasSubstr("projector type qwen2.5vl_merger, architecture llama")));
  EXPECT_THAT(match("qwen2_5_vl", "qwen3_vl").error().message, HasSubstr("rows for 3 layers"));
}

}  // namespace
}  // namespace nanomind
