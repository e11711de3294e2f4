// SPDX-License-Identifier: Apache-2.0
// A camera: pictures of what is before it, one at a time. One of this machine (V4L2), or a folder that stands in for
// one.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "media/image.h"

namespace nanomind {

struct Frame {
  std::vector<std::byte> file;  // as decode_image takes it
  Image image;                  // the same, decoded: a frame that comes torn from a camera is never given out
};

// One call at a time.
class Camera {
 public:
  virtual ~Camera() = default;
  // The picture of now, not one that has waited in a queue. Nothing: there are no more (the end of a folder). Errors:
  // io where the camera is lost or gives nothing in time; cancelled once `cancel` (may be null) is set and a signal, or
  // the next frame, ends the wait; corrupt for a picture of a folder that cannot be read, after which the next call
  // takes the next one.
  virtual Result<std::optional<Frame>> take(const std::atomic<bool>* cancel) = 0;
  // For people: "/dev/video0, 1280x720 MJPEG".
  virtual std::string description() const = 0;
};

struct CameraOptions {
  Size size{1280, 720};   // wished for; the driver takes the nearest that it has
  int timeout_ms = 5000;  // for one frame; cameras need a second or two for their first
};

// Whether `text` is meant as a camera's name: it begins with "camera:".
bool is_camera_name(std::string_view text);

// "camera:" is the first device that captures, "camera:2" is /dev/video2, "camera:/dev/video2" a device by its path,
// and "camera:file:FOLDER" the pictures of a folder in the order of their names, each once. Errors: invalid_argument
// for other names, not_found without a camera, unsupported for one without a format that we read, io where the system
// refuses it (permission, busy).
Result<std::unique_ptr<Camera>> open_camera(std::string_view name, const CameraOptions& options = {});

}  // namespace nanomind
