// SPDX-License-Identifier: Apache-2.0
#include "format/gguf_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// A model in three parts; as gguf-split makes them, only the first has the model's metadata.
class GgufSplitTest : public testing::Test {
 protected:
  GgufSplitTest() {
    std::string name = (fs::temp_directory_path() / "gguf_split_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    for (uint16_t i = 0; i < 3; ++i) EXPECT_TRUE(part(i, i, 3).write(path(i)));
  }
  ~GgufSplitTest() override { fs::remove_all(folder_); }

  static GgufTestWriter part(uint16_t data, uint16_t index, uint16_t count) {
    GgufTestWriter w;
    if (index == 0) w.add("general.architecture", "llama").add("tokens", std::vector<std::string>{"a", "b"});
    w.add("split.no", index).add("split.count", count).add("split.tensors.count", int32_t{6});
    if (index == 0) w.add("last", uint8_t{7});
    const float value = data;
    w.add_floats("norm" + std::to_string(data), {3}, {value, value, value});
    w.add_tensor("matrix" + std::to_string(data), DType::q8_0, {2, 32}, std::vector<std::byte>(68, std::byte(data)));
    return w;
  }
  fs::path path(int i) const { return folder_ / ("model-0000" + std::to_string(i + 1) + "-of-00003.gguf"); }
  std::vector<fs::path> all() const { return {path(0), path(1), path(2)}; }
  fs::path target() const { return folder_ / "model.gguf"; }

  fs::path folder_;
};

TEST_F(GgufSplitTest, Load03AnyPartFindsTheSet) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find_parts(path(i)).value(), all());
}

TEST_F(GgufSplitTest, Load03MissingPartsAreNamed) {
  fs::remove(path(1));
  for (const int i : {0, 1, 2}) {
    const Error error = find_parts(path(i)).error();
    EXPECT_EQ(error.code, ErrorCode::not_found);
    EXPECT_THAT(error.message, HasSubstr("missing: model-00002-of-00003.gguf."));
  }
}

TEST_F(GgufSplitTest, OtherNamesAreNoParts) {
  for (const char* name : {"model.gguf", "-00001-of-00003.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf",
                           "m-0000x-of-00003.gguf", "m-00001-of-00003.bin", "m-00001_of-00003.gguf"}) {
    EXPECT_EQ(part_names(name), std::vector<fs::path>{name});
  }
}

TEST_F(GgufSplitTest, OpeningAPartSaysThatItIsOne) {
  const Error error = GgufFile::open(path(1)).error();
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, HasSubstr("model-00002-of-00003.gguf is one of 3 parts of a split model"));
}

TEST_F(GgufSplitTest, JoinsMetadataAndTensors) {
  ASSERT_TRUE(join_parts(all(), target()));
  const GgufFile joined = GgufFile::open(target()).value();
  ASSERT_EQ(joined.metadata().size(), 3u);
  EXPECT_EQ(joined.get_string("general.architecture").value(), "llama");
  EXPECT_EQ(joined.get_array("tokens", GgufType::string).value()->strings.size(), 2u);
  EXPECT_EQ(joined.get_uint("last").value(), 7u);
  ASSERT_EQ(joined.tensors().size(), 6u);
  for (int i = 0; i < 3; ++i) {
    const GgufTensor& norm = *joined.tensor("norm" + std::to_string(i));
    const float value = static_cast<float>(i);
    EXPECT_EQ(std::memcmp(norm.data.data(), std::vector<float>{value, value, value}.data(), 12), 0);
    const GgufTensor& matrix = *joined.tensor("matrix" + std::to_string(i));
    EXPECT_EQ(matrix.shape, (Shape{2, 32}));
    EXPECT_EQ(matrix.dtype, DType::q8_0);
    EXPECT_EQ(std::vector<std::byte>(matrix.data.begin(), matrix.data.end()), std::vector<std::byte>(68, std::byte(i)));
  }
}

TEST_F(GgufSplitTest, PartsOutOfOrderOrOfAnotherSetAreRefused) {
  const std::vector<fs::path> swapped = {path(0), path(2), path(1)};
  EXPECT_THAT(join_parts(swapped, target()).error().message,
              HasSubstr("says that it is part 3 of 3, but stands as part 2"));
  const std::vector<fs::path> two = {path(0), path(1)};
  EXPECT_THAT(join_parts(two, target()).error().message, HasSubstr("part 1 of 3, but stands as part 1 of 2"));
  ASSERT_TRUE(part(0, 1, 3).write(path(1)));  // the first part's tensors again
  EXPECT_THAT(join_parts(all(), target()).error().message, HasSubstr("the same tensor"));
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(GgufSplitTest, WholeModelIsNoPart) {
  ASSERT_TRUE(GgufTestWriter().add("general.architecture", "llama").write(target()));
  const std::vector<fs::path> one = {target()};
  EXPECT_THAT(join_parts(one, folder_ / "out.gguf").error().message, HasSubstr("split.no"));
}

}  // namespace
}  // namespace nanomind
