// SPDX-License-Identifier: Apache-2.0
// A folder in place of a camera, and the names that cameras have.
#include "media/camera/folder_camera.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "media/decode.h"
#include "media/test_pictures.h"

namespace nanomind {
namespace {

class FolderCameraTest : public testing::Test {
 protected:
  FolderCameraTest() {
    std::string name = (std::filesystem::temp_directory_path() / "folder_camera_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~FolderCameraTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::filesystem::path folder_;
};

TEST_F(FolderCameraTest, GivesPicturesInTheOrderOfTheirNamesAndThenNoMore) {
  write("b.dat", read_picture("arrow1.png"));  // what a file is, its bytes say
  write("a.jpg", read_picture("444.jpg"));
  write("notes.txt", "no picture");
  std::filesystem::create_directory(folder_ / "c");
  const auto camera = open_camera("camera:file:" + folder_.string());
  ASSERT_TRUE(camera) << camera.error().message;
  EXPECT_NE((*camera)->description().find("2 pictures"), std::string::npos);
  for (const char* name : {"444.jpg", "arrow1.png"}) {
    const auto frame = (*camera)->take(nullptr);
    ASSERT_TRUE(frame && *frame);
    const std::string expected = read_picture(name);
    EXPECT_TRUE(std::ranges::equal((*frame)->file, as_bytes(expected)));
    EXPECT_EQ((*frame)->image, decode_image(as_bytes(expected)).value());
  }
  for (int i = 0; i < 2; ++i) EXPECT_FALSE((*camera)->take(nullptr).value());
}

TEST_F(FolderCameraTest, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(open_camera("camera:file:" + folder_.string()).error().code, ErrorCode::not_found);
  EXPECT_EQ(open_camera("camera:file:" + (folder_ / "none").string()).error().code, ErrorCode::not_found);
  write("a.png", read_picture("arrow1.png").substr(0, 60));
  const auto camera = open_camera("camera:file:" + folder_.string());
  ASSERT_TRUE(camera);
  const auto torn = (*camera)->take(nullptr);
  ASSERT_FALSE(torn);
  EXPECT_EQ(torn.error().code, ErrorCode::corrupt);
  EXPECT_NE(torn.error().message.find("a.png"), std::string::npos);
  EXPECT_FALSE((*camera)->take(nullptr).value());
  const std::atomic<bool> cancel{true};
  EXPECT_EQ((*camera)->take(&cancel).error().code, ErrorCode::cancelled);
}

TEST_F(FolderCameraTest, APictureThatCannotBeReadIsPassedOver) {
  write("a.png", read_picture("arrow1.png").substr(0, 60));
  write("b.png", read_picture("arrow2.png"));
  write("c.png", read_picture("arrow3.png"));
  const auto camera = open_camera("camera:file:" + folder_.string());
  ASSERT_TRUE(camera);
  std::filesystem::remove(folder_ / "b.png");
  for (const char* name : {"a.png", "b.png"}) {
    const auto bad = (*camera)->take(nullptr);
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, ErrorCode::corrupt);
    EXPECT_NE(bad.error().message.find(name), std::string::npos);
  }
  const auto frame = (*camera)->take(nullptr);
  ASSERT_TRUE(frame && *frame);
  EXPECT_EQ((*frame)->image, decode_image(as_bytes(read_picture("arrow3.png"))).value());
}

TEST(CameraNameTest, IsToldFromAFilesName) {
  EXPECT_TRUE(is_camera_name("camera:"));
  EXPECT_TRUE(is_camera_name("camera:/dev/video2"));
  EXPECT_FALSE(is_camera_name("camera.jpg"));
  EXPECT_FALSE(is_camera_name("my camera:"));
  for (const char* name : {"camera:front", "camera:2x", "camera:-1"}) {
    const auto camera = open_camera(name);
    ASSERT_FALSE(camera) << name;
    EXPECT_EQ(camera.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(camera.error().message.find("camera:2"), std::string::npos);
  }
  EXPECT_EQ(open_camera("camera:/dev/nothing-of-this-name").error().code, ErrorCode::not_found);
  EXPECT_EQ(open_camera("camera:/dev/null").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace nanomind
