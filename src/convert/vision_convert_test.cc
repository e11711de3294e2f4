// SPDX-License-Identifier: Apache-2.0
// tests/data/checkpoint/* are tiny random models that see as their publishers save them; tests/data/vision has the same
// weights, written by tools/golden with the gguf package in the form that llama.cpp's converter gives vision files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "convert/convert.h"
#include "convert/test_folder.h"
#include "format/gguf.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

constexpr const char* kModels[] = {"gemma3", "idefics3", "llava_onevision", "minicpmv4_6"};

fs::path checkpoint_of(const std::string& name) { return fs::path("tests/data/checkpoint") / name; }
fs::path reference_of(const std::string& name) { return fs::path("tests/data/vision") / (name + ".gguf"); }

Result<Converted> convert(const fs::path& source, const fs::path& target, const ConvertChoice& choice) {
  ThreadPool pool(2);
  return convert_checkpoint(source, target, choice, {.pool = pool});
}

void expect_same_tensors(const GgufFile& ours, const GgufFile& theirs) {
  EXPECT_EQ(ours.tensors().size(), theirs.tensors().size());
  for (const GgufTensor& expected : theirs.tensors()) {
    SCOPED_TRACE(expected.name);
    const GgufTensor* tensor = ours.tensor(expected.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, expected.shape);
    ASSERT_EQ(tensor->dtype, expected.dtype);
    if (expected.name.ends_with(".ssm_a")) continue;  // computed in other functions; in tiny_checkpoints.py
    EXPECT_TRUE(std::ranges::equal(tensor->data, expected.data));
  }
}

// All keys of `theirs`; keys of ours alone end in one of `more`.
void expect_same_keys(const GgufFile& ours, const GgufFile& theirs, const std::vector<std::string_view>& more) {
  // tokenizer.json knows the order of SentencePiece's scores, not the scores.
  const std::set<std::string_view> of_the_model{"general.name", "general.license", "tokenizer.ggml.scores"};
  const auto find = [](const GgufFile& file, std::string_view key) {
    const auto found = std::ranges::find(file.metadata(), key, [](const auto& entry) { return entry.first; });
    return static_cast<size_t>(found - file.metadata().begin());
  };
  for (size_t i = 0; i < theirs.metadata().size(); ++i) {
    const std::string_view key = theirs.metadata()[i].first;
    if (of_the_model.contains(key)) continue;
    SCOPED_TRACE(key);
    const size_t same = find(ours, key);
    ASSERT_LT(same, ours.metadata().size());
    EXPECT_TRUE(std::ranges::equal(ours.metadata_bytes(same), theirs.metadata_bytes(i)));
  }
  for (const auto& [key, place] : ours.metadata()) {
    const bool is_ours = std::ranges::any_of(more, [&](std::string_view end) { return key.ends_with(end); });
    EXPECT_TRUE(of_the_model.contains(key) || is_ours || find(theirs, key) < theirs.metadata().size()) << key;
  }
}

class VisionConvert : public testing::Test {
 protected:
  fs::path copy(const std::string& name) const {
    const fs::path to = folder_.path() / "checkpoint";
    fs::remove_all(to);
    fs::copy(checkpoint_of(name), to, fs::copy_options::recursive);
    return to;
  }
  // The folder with one text of one of its files replaced.
  fs::path changed(const std::string& name, const char* file, const std::string& from, const std::string& to) const {
    const fs::path folder = copy(name);
    std::ifstream stream(folder / file);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(folder / file) << text;
    return folder;
  }
  std::string error_of(const fs::path& source, Halves halves = Halves::all) const {
    const auto made = convert(source, target_, {.dtype = DType::f16, .halves = halves});
    EXPECT_FALSE(fs::exists(target_));
    EXPECT_FALSE(fs::exists(vision_path(target_)));
    return made ? "" : made.error().message;
  }

  TestFolder folder_;
  fs::path target_ = folder_.path() / "out.gguf";
};

TEST_F(VisionConvert, MakesTheTwoFilesThatTheReferenceWrote) {
  for (const std::string name : kModels) {
    SCOPED_TRACE(name);
    const auto made = convert(checkpoint_of(name), target_, {.dtype = DType::f16});
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_EQ(made->files.size(), 2U);
    EXPECT_THAT(made->files[1].path.string(), EndsWith("/mmproj-out.gguf"));
    EXPECT_EQ(made->files[1].architecture, "clip");
    EXPECT_THAT(made->warnings, testing::IsEmpty());
    const auto text = GgufFile::open(target_), text_reference = GgufFile::open(reference_of("tiny-" + name));
    const auto vision = GgufFile::open(vision_path(target_));
    const auto vision_reference = GgufFile::open(reference_of("mmproj-tiny-" + name));
    ASSERT_TRUE(text && text_reference && vision && vision_reference);
    expect_same_tensors(*text, *text_reference);
    expect_same_tensors(*vision, *vision_reference);
    expect_same_keys(*vision, *vision_reference, {"general.quantization_version"});
    expect_same_keys(*text, *text_reference,
                     {"general.quantization_version", "general.type", "general.file_type", "padding_token_id",
                      "add_eos_token", "vocab_size", "rope.dimension_count", "rope.freq_base_swa",
                      "attention.key_length", "attention.value_length", "eot_token_id"});
  }
}

TEST_F(VisionConvert, WritesOneHalfAlone) {
  ASSERT_TRUE(convert(checkpoint_of("idefics3"), target_, {.halves = Halves::text}));
  EXPECT_FALSE(fs::exists(vision_path(target_)));
  EXPECT_EQ(GgufFile::open(target_)->get_string("general.architecture").value(), "llama");
  ASSERT_TRUE(convert(checkpoint_of("idefics3"), target_, {.halves = Halves::vision}));
  EXPECT_FALSE(fs::exists(vision_path(target_)));
  EXPECT_EQ(GgufFile::open(target_)->get_string("general.architecture").value(), "clip");
  fs::remove(target_);
  EXPECT_THAT(error_of("tests/data/checkpoint", Halves::vision), HasSubstr("describes no model that sees"));
}

// What llama.cpp's converter makes of other types: matrices of the type, the first filters and positions as floats.
TEST_F(VisionConvert, KeepsFiltersAndPositionsAsFloats) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::q8_0}) {
    ASSERT_TRUE(convert(checkpoint_of("minicpmv4_6"), target_, {.dtype = dtype}));
    const auto file = GgufFile::open(vision_path(target_));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensor("v.blk.0.ffn_up.weight")->dtype, dtype);
    EXPECT_EQ(file->tensor("mm.up.weight")->dtype, dtype);
    for (const char* name : {"v.patch_embd.weight", "v.position_embd.weight", "v.blk.0.ln1.weight", "mm.up.bias"})
      EXPECT_EQ(file->tensor(name)->dtype, DType::f32) << name;
  }
}

TEST_F(VisionConvert, LeavesOutWhatSettingsLeaveWithoutUse) {
  // MiniCPM-V without its window merger.
  ASSERT_TRUE(convert(changed("minicpmv4_6", "preprocessor_config.json", R"("16x")", R"("4x")"), target_,
                      {.dtype = DType::f16}));
  const auto by_4 = GgufFile::open(vision_path(target_)),
             reference = GgufFile::open(reference_of("mmproj-tiny-minicpmv4_6-4x"));
  ASSERT_TRUE(by_4 && reference);
  expect_same_keys(*by_4, *reference, {"general.quantization_version"});
  EXPECT_EQ(by_4->tensors().size(), reference->tensors().size());
  // LLaVA reads the states before the last block.
  ASSERT_TRUE(convert(
      changed("llava_onevision", "config.json", R"("vision_feature_layer": -1)", R"("vision_feature_layer": -2)"),
      target_, {.dtype = DType::f16}));
  const auto short_tower = GgufFile::open(vision_path(target_));
  ASSERT_TRUE(short_tower);
  EXPECT_EQ(short_tower->get_uint("clip.vision.block_count").value(), 2U);
  EXPECT_EQ((*short_tower->get_array("clip.vision.feature_layer", GgufType::i32))->integer(0), 2);
  EXPECT_NE(short_tower->tensor("v.blk.1.ln1.weight"), nullptr);
  EXPECT_EQ(short_tower->tensor("v.blk.2.ln1.weight"), nullptr);
}

// Publishers leave out of the parts' settings what the part's class has so.
TEST_F(VisionConvert, KnowsWhatPublishersLeaveOut) {
  ASSERT_TRUE(convert(changed("llava_onevision", "config.json", R"("rms_norm_eps": 1e-06,)", ""), target_,
                      {.dtype = DType::f16}));
  EXPECT_EQ(GgufFile::open(target_)->get_float("qwen2.attention.layer_norm_rms_epsilon").value(), 1e-6F);
}

TEST_F(VisionConvert, RefusesWhatFilesCannotSay) {
  EXPECT_THAT(error_of(changed("minicpmv4_6", "config.json", R"("num_hidden_layers": 4)", R"("num_hidden_layers": 5)")),
              HasSubstr("has 4 blocks, but config.json says 5"));
  EXPECT_THAT(error_of(changed("idefics3", "config.json", R"("image_size": 32)", R"("image_size": 64)")),
              HasSubstr("tiles of the tower's size"));
  EXPECT_THAT(error_of(changed("idefics3", "preprocessor_config.json", R"("resample": 1)", R"("resample": 3)")),
              HasSubstr("another filter"));
  EXPECT_THAT(error_of(changed("idefics3", "preprocessor_config.json", "image_mean", "image_median")),
              HasSubstr("no list \"image_mean\" of three numbers"));
  EXPECT_THAT(error_of(changed("llava_onevision", "config.json", R"("full",)", R"("default",)")),
              HasSubstr("for a part of them"));
  EXPECT_THAT(error_of(changed("minicpmv4_6", "config.json", R"("gelu_pytorch_tanh")", R"("quick_gelu")")),
              HasSubstr("'quick_gelu'"));
}

TEST_F(VisionConvert, WarnsOfEyesThatItDoesNotKnow) {
  const fs::path source = changed("minicpmv4_6", "config.json", R"("model_type": "minicpmv4_6",
)",
                                  R"("model_type": "qwen3_5",
)");
  const auto made = convert(source, target_, {.dtype = DType::f16});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->files.size(), 1U);
  EXPECT_THAT(made->warnings, testing::ElementsAre(HasSubstr("type 'qwen3_5' see with is not converted")));
  EXPECT_FALSE(fs::exists(vision_path(target_)));
  fs::remove(target_);
  EXPECT_THAT(error_of(source, Halves::vision), HasSubstr("known types are gemma3, idefics3"));
}

}  // namespace
}  // namespace nanomind
