// SPDX-License-Identifier: Apache-2.0
// The camera against scripted devices: formats, odd strides, exposure, stale and damaged frames, and everything that a
// system may refuse.
#include "media/camera/v4l2_camera.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/videodev2.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "media/decode.h"
#include "media/test_pictures.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

struct ScriptedFrame {
  std::string bytes;
  uint32_t flags = 0;
};

// One kind of device under every path of `paths`. Frames come in order; when there are none, a wait times out.
class FakeVideo final : public VideoSystem {
 public:
  std::vector<std::string> paths{"/dev/video0"};
  std::map<std::string, uint32_t> capabilities;  // where they are not those of a camera
  std::vector<uint32_t> formats{V4L2_PIX_FMT_YUYV, V4L2_PIX_FMT_MJPEG};
  Size size{640, 480};  // the only one
  uint32_t stride = 0;  // bytesperline
  uint32_t buffer_count = 4;
  std::map<unsigned long, int> refused;  // errno of requests
  std::map<std::string, int> closed;     // errno of open
  std::deque<ScriptedFrame> frames;
  int wait_result = 0;  // when there is a frame
  int gone_after = -1;  // frames after which the device is gone

  // What was asked for.
  v4l2_pix_format set{};
  std::string path;
  std::set<uint32_t> queued;
  int opened = 0, mapped = 0, given = 0;
  bool streaming = false;

  std::vector<std::string> devices() override { return paths; }
  int open(const std::string& name, int& fd) override {
    if (closed.contains(name)) return closed[name];
    path = name;
    ++opened;
    queued.clear();
    fd = 7;
    return 0;
  }
  void close(int) override { --opened; }
  int wait(int, int timeout_ms) override {
    EXPECT_EQ(timeout_ms, 5000);
    if (wait_result != 0) return wait_result;
    return frames.empty() && gone_after < 0 ? ETIMEDOUT : 0;
  }
  int map(int, size_t bytes, uint32_t offset, std::span<std::byte>& memory) override {
    memories_.resize(buffer_count);
    memories_[offset].resize(bytes);
    memory = memories_[offset];
    ++mapped;
    return 0;
  }
  void unmap(std::span<std::byte>) override { --mapped; }
  int control(int, unsigned long request, void* argument) override {
    if (refused.contains(request)) return refused[request];
    switch (request) {
      case VIDIOC_QUERYCAP: return query(*static_cast<v4l2_capability*>(argument));
      case VIDIOC_ENUM_FMT: return list(*static_cast<v4l2_fmtdesc*>(argument));
      case VIDIOC_S_FMT: return choose(static_cast<v4l2_format*>(argument)->fmt.pix);
      case VIDIOC_REQBUFS: static_cast<v4l2_requestbuffers*>(argument)->count = buffer_count; return 0;
      case VIDIOC_QUERYBUF: {
        auto& buffer = *static_cast<v4l2_buffer*>(argument);
        buffer.length = 1 << 20;
        buffer.m.offset = buffer.index;
        return 0;
      }
      case VIDIOC_QBUF: EXPECT_TRUE(queued.insert(static_cast<v4l2_buffer*>(argument)->index).second); return 0;
      case VIDIOC_DQBUF: return give(*static_cast<v4l2_buffer*>(argument));
      case VIDIOC_STREAMON: streaming = true; return 0;
      case VIDIOC_STREAMOFF: streaming = false; return 0;
      default: return EINVAL;
    }
  }

  // The driver has filled `count` buffers while nobody looked; more come only to who waits.
  void fill_unseen(int count) { unseen_ = count; }

 private:
  int query(v4l2_capability& found) {
    const uint32_t camera = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING;
    found.device_caps = capabilities.contains(path) ? capabilities[path] : camera;
    found.capabilities = camera | V4L2_CAP_DEVICE_CAPS;  // of the whole apparatus, which has other nodes too
    return 0;
  }
  int list(v4l2_fmtdesc& format) {
    if (format.index >= formats.size()) return EINVAL;
    format.pixelformat = formats[format.index];
    std::memcpy(format.description, "Planar 4:2:0", 13);
    return 0;
  }
  int choose(v4l2_pix_format& format) {
    format.width = static_cast<uint32_t>(size.width);
    format.height = static_cast<uint32_t>(size.height);
    format.bytesperline = stride;
    set = format;
    return 0;
  }
  int give(v4l2_buffer& buffer) {
    if (gone_after >= 0 && given >= gone_after) return ENODEV;
    if (frames.empty() || queued.empty()) return EAGAIN;
    if (unseen_ && (*unseen_)-- == 0) {
      unseen_.reset();
      return EAGAIN;
    }
    const ScriptedFrame frame = frames.front();
    frames.pop_front();
    buffer.index = *queued.begin();
    queued.erase(queued.begin());
    buffer.bytesused = static_cast<uint32_t>(frame.bytes.size());
    buffer.flags = frame.flags;
    std::memcpy(memories_[buffer.index].data(), frame.bytes.data(), frame.bytes.size());
    ++given;
    return 0;
  }
  std::vector<std::vector<std::byte>> memories_;
  std::optional<int> unseen_;
};

std::string yuyv_frame(Size size, uint8_t luma, size_t stride) {
  std::string bytes(stride * static_cast<size_t>(size.height), '\x80');
  for (size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(luma);
  return bytes;
}

class V4l2CameraTest : public testing::Test {
 protected:
  std::shared_ptr<FakeVideo> video_ = std::make_shared<FakeVideo>();
  Result<std::unique_ptr<Camera>> open() { return open_first_camera(video_, {}); }
  Error open_error() {
    auto camera = open();
    EXPECT_FALSE(camera);
    camera = camera ? fail(ErrorCode::io, "it opened") : std::move(camera);
    EXPECT_EQ(video_->opened, 0);
    EXPECT_EQ(video_->mapped, 0);
    return camera.error();
  }
  void script_yuyv(std::initializer_list<uint8_t> lumas) {
    video_->formats = {V4L2_PIX_FMT_YUYV};
    video_->size = {4, 2};
    for (const uint8_t luma : lumas) video_->frames.push_back({yuyv_frame({4, 2}, luma, 8)});
  }
};

TEST_F(V4l2CameraTest, PrefersMjpegAndGivesItsFilesAsTheyAre) {
  const std::string picture = read_picture("444.jpg");
  for (int i = 0; i < kSettleFramesMin; ++i) video_->frames.push_back({picture});
  {
    const auto camera = open();
    ASSERT_TRUE(camera) << camera.error().message;
    EXPECT_EQ(video_->set.pixelformat, static_cast<uint32_t>(V4L2_PIX_FMT_MJPEG));
    EXPECT_EQ((*camera)->description(), "/dev/video0, 640x480 MJPEG");
    const auto frame = (*camera)->take(nullptr);
    ASSERT_TRUE(frame && *frame);
    EXPECT_TRUE(std::ranges::equal((*frame)->file, as_bytes(picture)));
    EXPECT_EQ((*frame)->image, decode_image(as_bytes(picture)).value());
    EXPECT_TRUE(video_->streaming);
    EXPECT_EQ(video_->queued.size(), 4u);
  }
  EXPECT_FALSE(video_->streaming);
  EXPECT_EQ(video_->opened, 0);
  EXPECT_EQ(video_->mapped, 0);
}

// Cameras leave the Huffman tables out, as everybody knows them (RFC 2435 has the same ones).
TEST_F(V4l2CameraTest, MjpegWithoutHuffmanTablesIsRead) {
  std::string picture = read_picture("444.jpg");
  const Image expected = decode_image(as_bytes(picture)).value();
  for (size_t at = picture.find("\xff\xc4"); at != std::string::npos; at = picture.find("\xff\xc4"))
    picture.erase(at, 2 + static_cast<uint8_t>(picture[at + 2]) * 256u + static_cast<uint8_t>(picture[at + 3]));
  for (int i = 0; i < kSettleFramesMin; ++i) video_->frames.push_back({picture});
  const auto frame = open().value()->take(nullptr);
  ASSERT_TRUE(frame && *frame) << frame.error().message;
  EXPECT_EQ((*frame)->image, expected);
}

TEST_F(V4l2CameraTest, YuyvWithOddStridesBecomesAFile) {
  video_->formats = {V4L2_PIX_FMT_YUYV};
  video_->size = {6, 3};
  video_->stride = 20;
  for (int i = 0; i < kSettleFramesMin; ++i) video_->frames.push_back({yuyv_frame({6, 3}, 126, 20)});
  const auto frame = open().value()->take(nullptr);
  ASSERT_TRUE(frame && *frame);
  EXPECT_EQ((*frame)->image.size, (Size{6, 3}));
  for (const uint8_t sample : (*frame)->image.pixels) EXPECT_EQ(sample, 128);
  EXPECT_EQ(decode_image((*frame)->file).value(), (*frame)->image);
}

TEST_F(V4l2CameraTest, WaitsUntilTheExposureHasSettled) {
  script_yuyv({16, 40, 80, 120, 150, 151, 200});
  const auto camera = open().value();
  const auto frame = camera->take(nullptr);
  ASSERT_TRUE(frame && *frame);
  EXPECT_EQ(video_->given, 6) << "the first that is about as bright as the one before";
  EXPECT_NEAR((*frame)->image.pixels[0], 157, 1);  // luma 151
}

TEST_F(V4l2CameraTest, AnExposureThatNeverSettlesIsTakenAsItIs) {
  script_yuyv({16, 200, 16, 200, 16, 200, 16, 200, 16, 200, 16, 200});
  EXPECT_TRUE(open().value()->take(nullptr).value());
  EXPECT_EQ(video_->given, kSettleFramesMax);
}

TEST_F(V4l2CameraTest, FramesThatWaitedAreNotGivenOut) {
  script_yuyv({50, 50, 50, 50, 90, 91, 92, 93, 200});
  const auto camera = open().value();
  ASSERT_TRUE(camera->take(nullptr).value());
  video_->fill_unseen(4);
  const auto frame = camera->take(nullptr);
  ASSERT_TRUE(frame && *frame);
  EXPECT_NEAR((*frame)->image.pixels[0], 214, 1);  // luma 200
  EXPECT_EQ(video_->queued.size(), 4u);
}

TEST_F(V4l2CameraTest, DamagedFramesAreSkipped) {
  script_yuyv({50, 50, 50, 50, 50, 50});
  video_->frames[1].flags = V4L2_BUF_FLAG_ERROR;
  video_->frames[2].bytes.resize(7);
  EXPECT_TRUE(open().value()->take(nullptr).value());
  EXPECT_EQ(video_->given, kSettleFramesMin + 2);
}

TEST_F(V4l2CameraTest, OnlyDamagedFramesAreAnError) {
  script_yuyv({});
  for (int i = 0; i < 2 * kBadFramesMax; ++i) video_->frames.push_back({"torn"});
  const auto frame = open().value()->take(nullptr);
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, ErrorCode::io);
  EXPECT_THAT(frame.error().message, HasSubstr("damaged"));
  EXPECT_EQ(video_->given, kBadFramesMax);
}

TEST_F(V4l2CameraTest, ACameraThatGivesNothingOrGoesIsAnError) {
  script_yuyv({50, 50, 50, 50});
  const auto camera = open().value();
  ASSERT_TRUE(camera->take(nullptr).value());
  const auto silent = camera->take(nullptr);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::io);
  EXPECT_THAT(silent.error().message, HasSubstr("5000 ms"));
  video_->gone_after = video_->given;
  const auto gone = camera->take(nullptr);
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("is gone"));
}

TEST_F(V4l2CameraTest, ASignalEndsTheWaitWhereItWasMeantSo) {
  script_yuyv({50});
  const auto camera = open().value();
  video_->wait_result = EINTR;
  EXPECT_EQ(camera->take(nullptr).error().code, ErrorCode::io) << "signals without end are no picture either";
  std::atomic<bool> cancel{true};
  EXPECT_EQ(camera->take(&cancel).error().code, ErrorCode::cancelled);
}

TEST_F(V4l2CameraTest, TheFirstThatCapturesIsTaken) {
  video_->paths = {"/dev/video0", "/dev/video1", "/dev/video4"};
  video_->capabilities["/dev/video0"] = V4L2_CAP_VIDEO_M2M | V4L2_CAP_STREAMING;  // a codec
  video_->capabilities["/dev/video1"] = V4L2_CAP_META_CAPTURE | V4L2_CAP_STREAMING;
  EXPECT_THAT(open().value()->description(), HasSubstr("/dev/video4"));
}

TEST_F(V4l2CameraTest, WithoutACameraItSaysWhatToDo) {
  video_->paths = {};
  const Error none = open_error();
  EXPECT_EQ(none.code, ErrorCode::not_found);
  EXPECT_THAT(none.message, HasSubstr("Plug one in"));
  video_->paths = {"/dev/video0"};
  video_->capabilities["/dev/video0"] = V4L2_CAP_VIDEO_CAPTURE_MPLANE | V4L2_CAP_STREAMING;
  EXPECT_THAT(open_error().message, HasSubstr("several planes"));
}

TEST_F(V4l2CameraTest, NeitherFormatIsAnErrorThatNamesWhatThereIs) {
  video_->formats = {V4L2_PIX_FMT_NV12};
  EXPECT_THAT(open_error().message, HasSubstr("neither MJPEG nor YUYV, but Planar 4:2:0"));
  const auto named = V4l2Camera::open(video_, "/dev/video0", {});
  EXPECT_EQ(named.error().code, ErrorCode::unsupported);
}

TEST_F(V4l2CameraTest, ABusyOrForbiddenCameraIsNotPassedOver) {
  video_->paths = {"/dev/video0", "/dev/video2"};
  video_->closed["/dev/video0"] = EACCES;
  EXPECT_THAT(open_error().message, HasSubstr("group video"));
  video_->closed["/dev/video0"] = EBUSY;
  EXPECT_THAT(open_error().message, HasSubstr("in use by another program"));
}

TEST_F(V4l2CameraTest, WhateverIsRefusedIsAnErrorAndLeavesNothingOpen) {
  for (const unsigned long request :
       {static_cast<unsigned long>(VIDIOC_S_FMT), static_cast<unsigned long>(VIDIOC_REQBUFS),
        static_cast<unsigned long>(VIDIOC_QUERYBUF), static_cast<unsigned long>(VIDIOC_QBUF),
        static_cast<unsigned long>(VIDIOC_STREAMON)}) {
    video_->refused = {{request, EBUSY}};
    EXPECT_THAT(open_error().message, HasSubstr("in use by another program")) << request;
  }
  video_->refused = {{VIDIOC_STREAMON, ENOSPC}};
  EXPECT_THAT(open_error().message, HasSubstr("USB"));
  video_->refused = {};
  video_->size = {0, 0};
  EXPECT_EQ(V4l2Camera::open(video_, "/dev/video0", {}).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace nanomind
