// SPDX-License-Identifier: Apache-2.0
// Files are written here by hand, after the description of the format: an independent spelling of it.
#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

namespace nanomind {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

Result<SafetensorsFile> parse(const std::string& file) {
  return SafetensorsFile::parse(std::as_bytes(std::span(file)), "The file");
}

std::string error_of(const std::string& file) {
  const auto result = parse(file);
  return result ? "" : result.error().message;
}

class Folder {
 public:
  Folder() : path_(fs::path(testing::TempDir()) / ("safetensors-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

constexpr const char* kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
    R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}  )";

TEST(Safetensors, FindsTensorsWhereTheyLie) {
  const std::string file = file_of(kTwoTensors, std::string(16, 'x') + "yyyyyy");
  const auto parsed = parse(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->tensors().size(), 2U);
  const SafetensorsTensor &a = parsed->tensors()[0], &b = parsed->tensors()[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, SafetensorsType::f32);
  EXPECT_THAT(a.shape, ElementsAre(2, 2));
  EXPECT_EQ(a.data.size(), 16U);
  EXPECT_EQ(b.type, SafetensorsType::bf16);
  EXPECT_EQ(static_cast<char>(b.data[0]), 'y');
  EXPECT_EQ(b.elements(), 3);
}

TEST(Safetensors, RefusesWhatItsBytesDoNotBear) {
  const std::string data(16, '\0');
  const auto one = [&](const std::string& item) { return error_of(file_of("{\"a\":" + item + "}", data)); };
  EXPECT_THAT(error_of("abc"), HasSubstr("too short"));
  EXPECT_THAT(error_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)), HasSubstr("header does not fit"));
  EXPECT_THAT(error_of(file_of("[1,2]", "")), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of(file_of("{\"a\":", "")), HasSubstr("no JSON object"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,20]})"), HasSubstr("outside the file"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4],"data_offsets":[8,0]})"), HasSubstr("outside the file"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"), HasSubstr("number of bytes"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1099511627776,1099511627776,4],"data_offsets":[0,16]})"),
              HasSubstr("number of bytes"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"), HasSubstr("no shape"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})"), HasSubstr("no shape"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0.5,16]})"), HasSubstr("no pair of data offsets"));
  EXPECT_THAT(one(R"({"dtype":"Q7","shape":[4],"data_offsets":[0,16]})"), HasSubstr("type 'Q7'"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), HasSubstr("belong to no tensor"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})"), HasSubstr("a gap or an overlap"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                               data)),
              HasSubstr("a gap or an overlap before tensor 'b'"));
}

TEST(Safetensors, ReadsTheFilesThatAnIndexNames) {
  const Folder folder;
  folder.write("one.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"));
  folder.write("two.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "2"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto model = SafetensorsModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 2U);
  ASSERT_NE(model->find("b"), nullptr);
  EXPECT_EQ(static_cast<char>(model->find("b")->data[0]), '2');
  EXPECT_EQ(model->find("c"), nullptr);
}

TEST(Safetensors, RefusesAnIndexThatItsFilesDoNotKeep) {
  const Folder folder;
  const auto open = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    const auto model = SafetensorsModel::open(folder.path());
    return model ? "" : model.error().message;
  };
  folder.write("one.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"));
  folder.write("same.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"));
  EXPECT_THAT(open(R"({"weight_map":{"b":"one.safetensors"}})"), HasSubstr("promises the tensor 'b'"));
  EXPECT_THAT(open(R"({"weight_map":{"a":"../one.safetensors"}})"), HasSubstr("no file beside it"));
  EXPECT_THAT(open(R"({"weight_map":{"a":7}})"), HasSubstr("no file beside it"));
  EXPECT_THAT(open(R"({"weight_map":{"a":"one.safetensors","c":"same.safetensors"}})"), HasSubstr("another file"));
  EXPECT_THAT(open(R"({"metadata":{}})"), HasSubstr("no \"weight_map\""));
}

TEST(Safetensors, SaysThatAFolderHasNone) {
  const Folder folder;
  const auto model = SafetensorsModel::open(folder.path());
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("has no model.safetensors"));
}

}  // namespace
}  // namespace nanomind
