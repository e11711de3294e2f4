// SPDX-License-Identifier: Apache-2.0
#include "convert/join.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace nanomind {
namespace {

const std::filesystem::path kModel = "tests/data/vision/tiny-idefics3.gguf";
const std::filesystem::path kVision = "tests/data/vision/mmproj-tiny-idefics3.gguf";

Result<void> any(const GgufFile&, const GgufFile&) { return {}; }

class JoinTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(target_); }
  std::filesystem::path target_ =
      std::filesystem::temp_directory_path() / ("nanomind-join-" + std::to_string(::getpid()) + ".gguf");
};

TEST_F(JoinTest, TheFileHasWhatBothHad) {
  const auto bytes = join_files(kModel, kVision, target_, any);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, std::filesystem::file_size(target_));
  const auto joined = GgufFile::open(target_), model = GgufFile::open(kModel), vision = GgufFile::open(kVision);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->get_string("general.architecture").value(), "llama");
  EXPECT_EQ(joined->get_string("clip.projector_type").value(), "idefics3");
  EXPECT_EQ(joined->tensors().size(), model->tensors().size() + vision->tensors().size());
  for (const GgufFile* file : {&*model, &*vision}) {
    for (const GgufTensor& tensor : file->tensors()) {
      const GgufTensor* copy = joined->tensor(tensor.name);
      ASSERT_NE(copy, nullptr) << tensor.name;
      EXPECT_EQ(copy->dtype, tensor.dtype);
      EXPECT_TRUE(std::ranges::equal(copy->data, tensor.data)) << tensor.name;
    }
  }
}

// The writer aligns by its own measure, whatever the model's file said.
TEST_F(JoinTest, AnAlignmentOfTheSourceIsNotCopied) {
  const std::filesystem::path aligned = target_.string() + ".aligned";
  {
    const GgufMetadata metadata = GgufMetadata().add("general.architecture", "llama").add("general.alignment", 128U);
    auto writer = GgufWriter::create(aligned, metadata, {});
    ASSERT_TRUE(writer && writer->finish());
  }
  const auto joined_bytes = join_files(aligned, kVision, target_, any);
  std::filesystem::remove(aligned);
  ASSERT_TRUE(joined_bytes) << joined_bytes.error().message;
  const auto joined = GgufFile::open(target_), vision = GgufFile::open(kVision);
  ASSERT_TRUE(joined) << joined.error().message;
  for (const GgufTensor& tensor : vision->tensors())
    EXPECT_TRUE(std::ranges::equal(joined->tensor(tensor.name)->data, tensor.data)) << tensor.name;
}

TEST_F(JoinTest, OnlyAModelAndAVisionFileInThisOrder) {
  for (const auto& [first, second] : {std::pair{kVision, kModel}, {kModel, kModel}, {kVision, kVision}}) {
    const auto refused = join_files(first, second, target_, any);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(std::filesystem::exists(target_));
  }
  ASSERT_TRUE(join_files(kModel, kVision, target_, any));
  const auto twice = join_files(target_, kVision, target_.string() + "2", any);
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("already"), std::string::npos) << twice.error().message;
}

TEST_F(JoinTest, NothingIsWrittenOfAPairThatIsRefused) {
  const auto refused = join_files(kModel, kVision, target_, [](const GgufFile& model, const GgufFile& vision) {
    return fail(ErrorCode::invalid_argument, model.subject() + " and " + vision.subject());
  });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, kModel.string() + " and " + kVision.string());
  EXPECT_FALSE(std::filesystem::exists(target_));
  EXPECT_FALSE(std::filesystem::exists(target_.string() + ".partial"));
}

}  // namespace
}  // namespace nanomind
