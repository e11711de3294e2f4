// SPDX-License-Identifier: Apache-2.0
#include "media/camera/v4l2_camera.h"

#include <fmt/format.h>
#include <linux/videodev2.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "media/camera/yuyv.h"
#include "media/decode.h"
#include "media/picture_difference.h"

namespace nanomind {
namespace {

constexpr uint32_t kBuffers = 4;
constexpr uint32_t kFormats[] = {V4L2_PIX_FMT_MJPEG, V4L2_PIX_FMT_JPEG, V4L2_PIX_FMT_YUYV};  // the first is best
constexpr uint32_t kFormatsListedMax = 256;  // of drivers that never end their list

bool is_jpeg(uint32_t format) { return format != V4L2_PIX_FMT_YUYV; }

template <typename T>
T of_capture() {
  T request{};
  request.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
  return request;
}

v4l2_buffer buffer_of(uint32_t index) {
  auto buffer = of_capture<v4l2_buffer>();
  buffer.memory = V4L2_MEMORY_MMAP;
  buffer.index = index;
  return buffer;
}

}  // namespace

std::unexpected<Error> V4l2Camera::error(const char* what, int code) const {
  switch (code) {
    case EBUSY:
      return fail(ErrorCode::io, fmt::format("The camera {} is in use by another program. Close that one; `fuser {}` "
                                             "tells which it is.",
                                             path_, path_));
    case EACCES:
    case EPERM:
      return fail(ErrorCode::io, fmt::format("You may not use the camera {}. Join the group video (`sudo usermod -aG "
                                             "video $USER`) and log in again.",
                                             path_));
    case ENOENT:
      return fail(ErrorCode::not_found,
                  fmt::format("There is no camera {}. Plug it in, or choose one of /dev/video*.", path_));
    case ENODEV:
    case ENXIO: return fail(ErrorCode::io, fmt::format("The camera {} is gone. Plug it in again.", path_));
    case ENOSPC:
      return fail(ErrorCode::io, fmt::format("The USB bus has no room left for the pictures of the camera {}. Use "
                                             "another port, or fewer cameras.",
                                             path_));
    case ETIMEDOUT:
      return fail(ErrorCode::io, fmt::format("The camera {} has given no picture for {} ms. Unplug it and plug it in "
                                             "again.",
                                             path_, options_.timeout_ms));
    default: return fail(ErrorCode::io, fmt::format("The camera {} cannot {}: {}.", path_, what, std::strerror(code)));
  }
}

Result<std::unique_ptr<Camera>> V4l2Camera::open(std::shared_ptr<VideoSystem> system, const std::string& path,
                                                 const CameraOptions& options) {
  std::unique_ptr<V4l2Camera> camera(new V4l2Camera(std::move(system), path, options));
  if (const int code = camera->system_->open(path, camera->fd_)) {
    camera->fd_ = -1;
    return camera->error("be opened", code);
  }
  TRY(camera->check_device());
  TRY(camera->choose_format());
  TRY(camera->map_buffers());
  TRY(camera->start());
  return camera;
}

V4l2Camera::~V4l2Camera() {
  if (fd_ < 0) return;
  int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
  if (streaming_) system_->control(fd_, VIDIOC_STREAMOFF, &type);
  for (const std::span<std::byte> buffer : buffers_) system_->unmap(buffer);
  system_->close(fd_);
}

Result<void> V4l2Camera::check_device() {
  v4l2_capability found{};
  if (const int code = system_->control(fd_, VIDIOC_QUERYCAP, &found)) {
    if (code == ENOTTY || code == EINVAL)
      return fail(ErrorCode::unsupported, fmt::format("{} is no video device.", path_));
    return error("tell what it can do", code);
  }
  const uint32_t can = (found.capabilities & V4L2_CAP_DEVICE_CAPS) != 0 ? found.device_caps : found.capabilities;
  constexpr uint32_t kNeeded = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING;
  if ((can & kNeeded) == kNeeded) return {};
  if ((can & V4L2_CAP_VIDEO_CAPTURE_MPLANE) != 0) {
    return fail(ErrorCode::unsupported,
                fmt::format("{} gives pictures in several planes, as image processors of boards "
                            "do; only cameras that give MJPEG or YUYV are read, as those of USB.",
                            path_));
  }
  return fail(ErrorCode::unsupported,
              fmt::format("{} does not capture pictures. Choose another of /dev/video*.", path_));
}

Result<void> V4l2Camera::choose_format() {
  std::string offered;
  size_t best = std::size(kFormats);
  for (uint32_t i = 0; i < kFormatsListedMax; ++i) {
    auto format = of_capture<v4l2_fmtdesc>();
    format.index = i;
    if (system_->control(fd_, VIDIOC_ENUM_FMT, &format) != 0) break;
    const auto place = static_cast<size_t>(std::ranges::find(kFormats, format.pixelformat) - std::begin(kFormats));
    best = std::min(best, place);
    const auto* name = reinterpret_cast<const char*>(format.description);
    offered += fmt::format("{}{}", offered.empty() ? "" : ", ", std::string(name, strnlen(name, 32)));
  }
  if (best == std::size(kFormats)) {
    return fail(ErrorCode::unsupported,
                fmt::format("The camera {} gives neither MJPEG nor YUYV, but {}. Use another camera.", path_,
                            offered.empty() ? "no format that it names" : offered));
  }
  auto format = of_capture<v4l2_format>();
  format.fmt.pix.width = static_cast<uint32_t>(options_.size.width);
  format.fmt.pix.height = static_cast<uint32_t>(options_.size.height);
  format.fmt.pix.pixelformat = kFormats[best];
  format.fmt.pix.field = V4L2_FIELD_ANY;
  if (const int code = system_->control(fd_, VIDIOC_S_FMT, &format)) return error("be set to a format", code);
  const v4l2_pix_format& set = format.fmt.pix;
  constexpr uint32_t kSideMax = 16'384;
  if (set.pixelformat != kFormats[best] || set.width == 0 || set.height == 0 || set.width > kSideMax ||
      set.height > kSideMax) {
    return fail(ErrorCode::unsupported,
                fmt::format("The camera {} refuses the format that it offers. Use another camera.", path_));
  }
  format_ = set.pixelformat;
  size_ = {static_cast<int>(set.width), static_cast<int>(set.height)};
  stride_ = std::max<size_t>(set.bytesperline, 4 * ((size_t{set.width} + 1) / 2));  // some drivers leave it at 0
  return {};
}

Result<void> V4l2Camera::map_buffers() {
  auto request = of_capture<v4l2_requestbuffers>();
  request.memory = V4L2_MEMORY_MMAP;
  request.count = kBuffers;
  if (const int code = system_->control(fd_, VIDIOC_REQBUFS, &request)) return error("reserve memory", code);
  if (request.count == 0) return error("reserve memory", ENOMEM);
  for (uint32_t i = 0; i < request.count; ++i) {
    v4l2_buffer buffer = buffer_of(i);
    if (const int code = system_->control(fd_, VIDIOC_QUERYBUF, &buffer))
      return error("tell where its memory is", code);
    std::span<std::byte> memory;
    if (const int code = system_->map(fd_, buffer.length, buffer.m.offset, memory)) return error("share memory", code);
    buffers_.push_back(memory);
  }
  return {};
}

Result<void> V4l2Camera::start() {
  for (uint32_t i = 0; i < buffers_.size(); ++i)
    if (const int code = queue(i)) return error("take a buffer", code);
  int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
  if (const int code = system_->control(fd_, VIDIOC_STREAMON, &type)) return error("start", code);
  streaming_ = true;
  return {};
}

int V4l2Camera::queue(uint32_t index) {
  v4l2_buffer buffer = buffer_of(index);
  return system_->control(fd_, VIDIOC_QBUF, &buffer);
}

int V4l2Camera::dequeue(Filled& filled) {
  v4l2_buffer buffer = buffer_of(0);
  if (const int code = system_->control(fd_, VIDIOC_DQBUF, &buffer)) return code;
  if (buffer.index >= buffers_.size()) return EINVAL;
  const std::span<std::byte> memory = buffers_[buffer.index];
  filled = {.index = buffer.index,
            .bytes = memory.first(std::min<size_t>(buffer.bytesused, memory.size())),
            .damaged = (buffer.flags & V4L2_BUF_FLAG_ERROR) != 0 || buffer.bytesused == 0};
  return 0;
}

Result<V4l2Camera::Filled> V4l2Camera::next_filled(const std::atomic<bool>* cancel) {
  Filled filled;
  for (int attempt = 0; attempt < kBadFramesMax; ++attempt) {
    if (cancel != nullptr && *cancel) return fail(ErrorCode::cancelled, "Stopped on request.");
    if (const int code = system_->wait(fd_, options_.timeout_ms)) {
      if (code == EINTR) continue;
      return error("be waited for", code);
    }
    const int code = dequeue(filled);
    if (code == 0) return filled;
    if (code != EAGAIN) return error("give a picture", code);
  }
  return error("be waited for", ETIMEDOUT);
}

// While nobody looks, the driver fills what buffers it has and stops: those are of then, not of now.
Result<void> V4l2Camera::drop_stale() {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Filled filled;
    const int code = dequeue(filled);
    if (code == EAGAIN) return {};
    if (code != 0) return error("give a picture", code);
    if (const int refused = queue(filled.index)) return error("take a buffer", refused);
  }
  return {};
}

Result<Frame> V4l2Camera::decode(std::span<const std::byte> bytes) const {
  if (is_jpeg(format_)) return Frame{.file = {bytes.begin(), bytes.end()}, .image = TRY(decode_image(bytes))};
  if (bytes.size() < yuyv_bytes(size_, stride_)) return fail(ErrorCode::corrupt, "The frame ends too early.");
  Image image = yuyv_to_image(bytes, size_, stride_);
  return Frame{.file = ppm_file(image), .image = std::move(image)};
}

// The next whole frame. Cables and hubs tear some.
Result<Frame> V4l2Camera::capture(const std::atomic<bool>* cancel) {
  std::string reason = "they are marked as damaged";
  for (int bad = 0; bad < kBadFramesMax; ++bad) {
    const Filled filled = TRY(next_filled(cancel));
    Result<Frame> frame = fail(ErrorCode::corrupt, reason);
    if (!filled.damaged) frame = decode(filled.bytes);
    if (const int code = queue(filled.index)) return error("take a buffer", code);
    if (frame) return frame;
    reason = frame.error().message;
  }
  return fail(ErrorCode::io,
              fmt::format("The camera {} gives damaged pictures only ({}). Try another cable or port.", path_, reason));
}

Result<Frame> V4l2Camera::settle(const std::atomic<bool>* cancel) {
  Frame frame = TRY(capture(cancel));
  double before = brightness(thumbnail(frame.image));
  for (int taken = 1; taken < kSettleFramesMax; ++taken) {
    frame = TRY(capture(cancel));
    const double now = brightness(thumbnail(frame.image));
    const bool steady = std::abs(now - before) < kSettledLevels;
    if (steady && taken + 1 >= kSettleFramesMin) break;
    before = now;
  }
  settled_ = true;
  return frame;
}

Result<std::optional<Frame>> V4l2Camera::take(const std::atomic<bool>* cancel) {
  if (!settled_) return TRY(settle(cancel));
  TRY(drop_stale());
  return TRY(capture(cancel));
}

std::string V4l2Camera::description() const {
  return fmt::format("{}, {}x{} {}", path_, size_.width, size_.height, is_jpeg(format_) ? "MJPEG" : "YUYV");
}

Result<std::unique_ptr<Camera>> open_first_camera(const std::shared_ptr<VideoSystem>& system,
                                                  const CameraOptions& options) {
  std::string passed_over;
  for (const std::string& path : system->devices()) {
    auto camera = V4l2Camera::open(system, path, options);
    if (camera || camera.error().code != ErrorCode::unsupported) return camera;
    passed_over += " " + camera.error().message;
  }
  return fail(
      ErrorCode::not_found,
      "There is no camera. Plug one in and look whether /dev/video0 appears; camera:file:FOLDER takes pictures of "
      "a folder instead." +
          (passed_over.empty() ? "" : " What there is:" + passed_over));
}

}  // namespace nanomind
