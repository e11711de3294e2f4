// SPDX-License-Identifier: Apache-2.0
// Which tensors of a file get which type, what is refused, and files that are cut off and taken up again.
#include "convert/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stop_token>

#include "convert/test_folder.h"
#include "convert/test_numbers.h"
#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class QuantizeFile : public testing::Test {
 protected:
  // Two layers of a decoder whose rows divide into super-blocks, one matrix whose rows do not.
  void SetUp() override {
    GgufTestWriter w;
    w.add("general.architecture", "llama").add("llama.block_count", uint32_t{8}).add("general.file_type", uint32_t{0});
    w.add_floats("token_embd.weight", {4, 256}, normal(1024, 1));
    w.add_floats("output.weight", {4, 256}, normal(1024, 2));
    for (const int layer : {0, 1}) {
      const std::string block = "blk." + std::to_string(layer) + ".";
      w.add_floats(block + "attn_norm.weight", {256}, normal(256, 3));
      w.add_floats(block + "attn_v.weight", {4, 256}, normal(1024, 4));
      w.add_floats(block + "attn_q.weight", {4, 256}, normal(1024, 5));
      w.add_floats(block + "ffn_up.weight", {4, 96}, normal(384, 6));
      w.add_floats(block + "ffn_gate_inp.weight", {4, 256}, normal(1024, 7));
    }
    ASSERT_TRUE(w.write(source()));
  }
  fs::path source() const { return folder_.path() / "in.gguf"; }
  fs::path target() const { return folder_.path() / "out.gguf"; }
  fs::path partial() const { return folder_.path() / "out.gguf.partial"; }

  Result<Quantized> quantize(const TypeChoice& choice, int threads = 1) const {
    ThreadPool pool(threads);
    return quantize_file(source(), target(), choice, {.pool = pool});
  }
  // "Q4_K" of a tensor of the result.
  std::string type_of(std::string_view name) const {
    const auto file = GgufFile::open(target());
    return file ? std::string(traits(*file->tensor(name)->dtype).name) : file.error().message;
  }
  std::string bytes() const {
    std::ifstream stream(target(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  TestFolder folder_;
};

TEST_F(QuantizeFile, GivesEachTensorItsType) {
  ASSERT_TRUE(quantize({.mix = *parse_mix("Q4_K_M")}));
  EXPECT_EQ(type_of("token_embd.weight"), "Q4_K");
  EXPECT_EQ(type_of("output.weight"), "Q6_K");
  EXPECT_EQ(type_of("blk.0.attn_v.weight"), "Q6_K");  // the first eighth
  EXPECT_EQ(type_of("blk.1.attn_v.weight"), "Q4_K");
  EXPECT_EQ(type_of("blk.0.attn_q.weight"), "Q4_K");
  EXPECT_EQ(type_of("blk.0.ffn_up.weight"), "Q5_0");  // 96 columns are no super-block
  EXPECT_EQ(type_of("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(type_of("blk.0.ffn_gate_inp.weight"), "F32");
  EXPECT_EQ(GgufFile::open(target())->get_uint("general.file_type"), 15U);
}

// Sizes of SigLIP's larger tower: 1152 is four and a half super-blocks, 4304 no number of any blocks.
TEST_F(QuantizeFile, KeepsTheFirstFiltersAndThePositionsOfVisionFiles) {
  GgufTestWriter w;
  w.add("general.architecture", "clip").add("clip.vision.block_count", uint32_t{16});
  w.add_floats("v.patch_embd.weight", {2, 3, 2, 32}, normal(384, 1));
  w.add_floats("v.position_embd.weight", {2, 1152}, normal(2304, 2));
  w.add_floats("v.blk.1.attn_v.weight", {2, 768}, normal(1536, 3));
  w.add_floats("v.blk.2.attn_v.weight", {2, 768}, normal(1536, 3));
  w.add_floats("v.blk.2.attn_q.weight", {2, 1152}, normal(2304, 3));
  w.add_floats("v.blk.2.attn_q.bias", {1152}, normal(1152, 4));
  w.add_floats("v.blk.2.ffn_down.weight", {2, 4304}, normal(8608, 5));
  w.add_floats("mm.input_projection.weight", {2, 256}, normal(512, 6));
  w.add_floats("mm.model.fc.weight", {2, 256}, normal(512, 7));
  ASSERT_TRUE(w.write(source()));
  for (const auto& [type, mixed, narrow] : {std::array{"q4_k_m", "Q4_K", "Q5_0"},
                                            {"q5_k_s", "Q5_K", "Q5_1"},
                                            {"q6_k", "Q6_K", "Q8_0"},
                                            {"q3_k_s", "Q3_K", "Q4_0"},
                                            {"q8_0", "Q8_0", "Q8_0"},
                                            {"iq4_xs", "IQ4_XS", "IQ4_NL"}}) {
    SCOPED_TRACE(type);
    ASSERT_TRUE(quantize({.mix = *parse_mix(type)}));
    for (const char* name :
         {"v.patch_embd.weight", "v.position_embd.weight", "v.blk.2.attn_q.bias", "mm.input_projection.weight"})
      EXPECT_EQ(type_of(name), "F32") << name;
    EXPECT_EQ(type_of("v.blk.2.attn_v.weight"), mixed);
    EXPECT_EQ(type_of("mm.model.fc.weight"), mixed);
    EXPECT_EQ(type_of("v.blk.2.attn_q.weight"), narrow);
    EXPECT_EQ(type_of("v.blk.2.ffn_down.weight"), "F16");
    EXPECT_EQ(GgufFile::open(target())->get_uint("clip.vision.block_count"), 16U);
  }
  // Mixes tell important layers by the tower's count.
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_k_m")}));
  EXPECT_EQ(type_of("v.blk.1.attn_v.weight"), "Q6_K");
}

TEST_F(QuantizeFile, ObeysRules) {
  const auto done = quantize({.mix = *parse_mix("q4_0"),
                              .rules = {{"blk\\.1\\.", DType::q8_0}, {"attn_v", DType::q5_1}},
                              .head = DType::f16,
                              .embedding = DType::q5_0});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(type_of("token_embd.weight"), "Q5_0");
  EXPECT_EQ(type_of("output.weight"), "F16");
  EXPECT_EQ(type_of("blk.0.attn_v.weight"), "Q5_1");
  EXPECT_EQ(type_of("blk.1.attn_v.weight"), "Q8_0");
  EXPECT_EQ(type_of("blk.1.attn_norm.weight"), "F32");
  const auto broken = quantize({.mix = *parse_mix("q4_0"), .rules = {{"(", DType::q8_0}}});
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr("no regular expression"));
  EXPECT_FALSE(parse_mix("q9_9"));
}

TEST_F(QuantizeFile, RefusesWishesThatNoTensorMeets) {
  const auto refusal = [&](const TypeChoice& choice) {
    const auto done = quantize(choice);
    EXPECT_FALSE(done);
    EXPECT_FALSE(fs::exists(target()) || fs::exists(partial()));
    return done ? std::string() : done.error().message;
  };
  const Mix mix = *parse_mix("q4_0");
  const std::string message = refusal({.mix = mix, .rules = {{"nosuch", DType::q8_0}, {"attn_norm", DType::q8_0}}});
  EXPECT_THAT(message, HasSubstr("'nosuch' decides nothing"));
  EXPECT_THAT(message, HasSubstr("'attn_norm' decides nothing"));  // vectors stay as they are
  EXPECT_THAT(message, HasSubstr("blk.0.attn_v.weight"));
  EXPECT_THAT(refusal({.mix = mix, .rules = {{"attn", DType::q8_0}, {"attn_v", DType::q5_0}}}),
              HasSubstr("'attn_v' decides nothing"));  // decided before
  GgufTestWriter w;
  w.add("general.architecture", "clip").add("clip.vision.block_count", uint32_t{1});
  w.add_floats("v.blk.0.attn_v.weight", {2, 768}, normal(1536, 3));
  ASSERT_TRUE(w.write(source()));
  EXPECT_THAT(refusal({.mix = mix, .rules = {}, .head = DType::q8_0}), HasSubstr("no matrix that makes logits"));
  EXPECT_THAT(refusal({.mix = mix, .rules = {}, .embedding = DType::q8_0}), HasSubstr("no table of tokens"));
}

TEST_F(QuantizeFile, WritesTheSameBytesWithAnyNumberOfThreads) {
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_k_s")}, 1));
  const std::string alone = bytes();
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_k_s")}, 4));
  EXPECT_EQ(bytes(), alone);
}

TEST_F(QuantizeFile, KnowsTheMixes) {
  const auto type = [&](std::string_view mix, std::string_view tensor) {
    EXPECT_TRUE(quantize({.mix = *parse_mix(mix)}));
    return type_of(tensor);
  };
  EXPECT_EQ(type("q2_k", "blk.0.attn_v.weight"), "Q3_K");
  EXPECT_EQ(type("q2_k", "blk.0.attn_q.weight"), "Q2_K");
  EXPECT_EQ(type("q2_k_s", "blk.0.attn_v.weight"), "Q2_K");
  EXPECT_EQ(type("iq4_xs", "blk.0.attn_v.weight"), "IQ4_XS");
  EXPECT_EQ(type("iq4_xs", "blk.0.ffn_up.weight"), "IQ4_NL");  // 96 columns
  EXPECT_EQ(type("mxfp4", "blk.0.attn_v.weight"), "MXFP4");
  EXPECT_EQ(type("mxfp4_moe", "blk.0.attn_v.weight"), "Q8_0");
  EXPECT_EQ(type("mxfp4_moe", "output.weight"), "Q8_0");
  ASSERT_TRUE(quantize({.mix = {DType::q2_k, MixSize::plain}, .head_default = HeadDefault::as_others}));
  EXPECT_EQ(type_of("blk.0.attn_v.weight"), "Q2_K");
  EXPECT_EQ(type_of("output.weight"), "Q2_K");
}

// Where the usual tools spend more bits than the name says: tables of files without a head, joined queries, keys and
// values as values alone, keys and values beside eight experts.
TEST_F(QuantizeFile, SparesWhatTheUsualToolsSpare) {
  GgufTestWriter w;
  w.add("general.architecture", "bert").add("bert.attention.causal", false).add("bert.block_count", uint32_t{8});
  w.add_floats("token_embd.weight", {2, 96}, normal(192, 1));
  w.add_floats("blk.0.attn_qkv.weight", {2, 256}, normal(512, 2));
  w.add_floats("blk.1.attn_qkv.weight", {2, 256}, normal(512, 2));
  ASSERT_TRUE(w.write(source()));
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_k_m")}));
  EXPECT_EQ(type_of("token_embd.weight"), "Q8_0");
  EXPECT_EQ(type_of("blk.0.attn_qkv.weight"), "Q6_K");
  EXPECT_EQ(type_of("blk.1.attn_qkv.weight"), "Q4_K");
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_0"), .embedding = DType::q5_0}));
  EXPECT_EQ(type_of("token_embd.weight"), "Q5_0");
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_0"), .head_default = HeadDefault::as_others}));
  EXPECT_EQ(type_of("token_embd.weight"), "Q4_0");

  GgufTestWriter n;
  n.add("general.architecture", "gemma3n").add("gemma3n.block_count", uint32_t{8});
  for (const char* name : {"token_embd.weight", "per_layer_token_embd.weight", "per_layer_model_proj.weight",
                           "altup_proj.weight", "blk.0.laurel_l.weight", "blk.0.proj.weight"})
    n.add_floats(name, {2, 256}, normal(512, 1));
  ASSERT_TRUE(n.write(source()));
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_0")}));
  for (const char* name : {"token_embd.weight", "per_layer_token_embd.weight"}) EXPECT_EQ(type_of(name), "Q6_K");
  for (const char* name : {"per_layer_model_proj.weight", "altup_proj.weight", "blk.0.laurel_l.weight"})
    EXPECT_EQ(type_of(name), "F32") << name;
  EXPECT_EQ(type_of("blk.0.proj.weight"), "Q4_0");

  GgufTestWriter x;
  x.add("general.architecture", "llama").add("llama.block_count", uint32_t{8}).add("llama.expert_count", uint32_t{8});
  for (const char* name : {"attn_q", "attn_k", "attn_v"})
    x.add_floats(std::string("blk.1.") + name + ".weight", {2, 256}, normal(512, 1));
  ASSERT_TRUE(x.write(source()));
  for (const char* mix : {"q4_0", "q4_k_s"}) {
    ASSERT_TRUE(quantize({.mix = *parse_mix(mix)}));
    for (const char* name : {"blk.1.attn_k.weight", "blk.1.attn_v.weight"}) EXPECT_EQ(type_of(name), "Q8_0") << mix;
    EXPECT_NE(type_of("blk.1.attn_q.weight"), "Q8_0") << mix;
  }
  ASSERT_TRUE(quantize({.mix = *parse_mix("q4_0"), .head_default = HeadDefault::as_others}));
  EXPECT_EQ(type_of("blk.1.attn_v.weight"), "Q4_0");
}

// `progress` is called after every tensor, and with this every tensor is kept.
TEST_F(QuantizeFile, GoesOnAfterAKill) {
  const TypeChoice choice{.mix = *parse_mix("q4_0")};
  ASSERT_TRUE(quantize(choice));
  const std::string whole = bytes();
  fs::remove(target());
  int tensors = 0;
  const auto kill = [&](uint64_t, uint64_t) {
    if (++tensors == 6) ::raise(SIGKILL);
  };
  EXPECT_EXIT(
      {
        ThreadPool pool(1);
        (void)quantize_file(source(), target(), choice, {.pool = pool, .progress = kill, .checkpoint_bytes = 1});
      },
      testing::KilledBySignal(SIGKILL), "");
  EXPECT_FALSE(fs::exists(target()));
  ASSERT_TRUE(fs::exists(partial()));
  const auto done = quantize(choice);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->taken_up, 5U);
  EXPECT_EQ(bytes(), whole);
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(QuantizeFile, TakesUpNothingOfAnotherChoice) {
  std::stop_source stop;
  const auto request = [&](uint64_t, uint64_t) { stop.request_stop(); };
  const auto interrupted = [&] {
    ThreadPool pool(1);
    stop = {};
    return quantize_file(source(), target(), {.mix = *parse_mix("q4_0")},
                         {.pool = pool, .progress = request, .stop = stop.get_token(), .checkpoint_bytes = 1 << 30});
  };
  const auto stopped = interrupted();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_THAT(stopped.error().message, HasSubstr("goes on where it stopped"));
  EXPECT_FALSE(fs::exists(target()));
  auto done = quantize({.mix = *parse_mix("q5_0")});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->taken_up, 0U);
  // Nor of another source.
  ASSERT_FALSE(interrupted());
  fs::last_write_time(source(), fs::last_write_time(source()) + std::chrono::seconds(1));
  done = quantize({.mix = *parse_mix("q4_0")});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->taken_up, 0U);
  // The same choice and source do go on.
  ASSERT_FALSE(interrupted());
  EXPECT_EQ(quantize({.mix = *parse_mix("q4_0")})->taken_up, 1U);
}

TEST_F(QuantizeFile, WarnsOfSourcesThatLostAlready) {
  const auto first = quantize({.mix = *parse_mix("q4_0")});
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->warnings.empty());
  fs::rename(target(), source());
  const auto second = quantize({.mix = *parse_mix("q5_0")});
  ASSERT_TRUE(second);
  ASSERT_EQ(second->warnings.size(), 1U);
  EXPECT_THAT(second->warnings[0], HasSubstr("quantised already (Q4_0)"));
  // What has its type stays as it is.
  const auto third = quantize({.mix = *parse_mix("q4_0")});
  ASSERT_TRUE(third);
  EXPECT_EQ(third->changed, 0U);
}

TEST_F(QuantizeFile, RefusesNumbersThatAreNone) {
  GgufTestWriter w;
  std::vector<float> x = normal(256, 1);
  x[77] = NAN;
  w.add("general.architecture", "llama").add_floats("output.weight", {1, 256}, x);
  ASSERT_TRUE(w.write(source()));
  const auto done = quantize({.mix = *parse_mix("q8_0")});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("no finite numbers"));
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_FALSE(fs::exists(partial()));
}

}  // namespace
}  // namespace nanomind
