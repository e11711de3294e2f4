// SPDX-License-Identifier: Apache-2.0
// A camera behind Video4Linux: memory-mapped streaming of MJPEG, or of YUYV where there is none.
//
// The first frames after opening are dropped while the exposure settles: at least kSettleFramesMin, and then until the
// mean brightness changes by less than kSettledLevels gray levels from one to the next, or kSettleFramesMax were taken.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "media/camera/camera.h"
#include "media/camera/video_system.h"

namespace nanomind {

inline constexpr int kSettleFramesMin = 4;
inline constexpr int kSettleFramesMax = 10;
inline constexpr double kSettledLevels = 3;
// Damaged frames in a row after which the camera counts as lost.
inline constexpr int kBadFramesMax = 30;

class V4l2Camera final : public Camera {
 public:
  // Opens the device and starts its stream. `unsupported` for devices that do not capture pictures, or in no format
  // that we read.
  static Result<std::unique_ptr<Camera>> open(std::shared_ptr<VideoSystem> system, const std::string& path,
                                              const CameraOptions& options);
  ~V4l2Camera() override;

  Result<std::optional<Frame>> take(const std::atomic<bool>* cancel) override;
  std::string description() const override;

 private:
  V4l2Camera(std::shared_ptr<VideoSystem> system, std::string path, const CameraOptions& options)
      : system_(std::move(system)), path_(std::move(path)), options_(options) {}

  Result<void> check_device();
  Result<void> choose_format();
  Result<void> map_buffers();
  Result<void> start();
  // The camera's memory of one frame, which goes back to the driver with `queue`. Nothing: it is damaged.
  struct Filled {
    uint32_t index = 0;
    std::span<const std::byte> bytes;
    bool damaged = false;
  };
  Result<Filled> next_filled(const std::atomic<bool>* cancel);
  int dequeue(Filled& filled);
  int queue(uint32_t index);
  Result<void> drop_stale();
  Result<Frame> capture(const std::atomic<bool>* cancel);
  Result<Frame> decode(std::span<const std::byte> bytes) const;
  Result<Frame> settle(const std::atomic<bool>* cancel);
  std::unexpected<Error> error(const char* what, int code) const;

  std::shared_ptr<VideoSystem> system_;
  std::string path_;
  CameraOptions options_;
  int fd_ = -1;
  uint32_t format_ = 0;  // a V4L2_PIX_FMT
  Size size_;
  size_t stride_ = 0;  // bytes, of YUYV
  std::vector<std::span<std::byte>> buffers_;
  bool streaming_ = false;
  bool settled_ = false;
};

// The first device of the system that captures pictures in a format that we read. One that is busy or forbidden is not
// passed over: another camera would look elsewhere.
Result<std::unique_ptr<Camera>> open_first_camera(const std::shared_ptr<VideoSystem>& system,
                                                  const CameraOptions& options);

}  // namespace nanomind
