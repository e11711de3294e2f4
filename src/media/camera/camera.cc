// SPDX-License-Identifier: Apache-2.0
#include "media/camera/camera.h"

#include <fmt/format.h>

#include "media/camera/folder_camera.h"
#include "media/camera/v4l2_camera.h"

namespace nanomind {
namespace {

constexpr std::string_view kPrefix = "camera:";
constexpr std::string_view kFilePrefix = "file:";

}  // namespace

bool is_camera_name(std::string_view text) { return text.starts_with(kPrefix); }

Result<std::unique_ptr<Camera>> open_camera(std::string_view name, const CameraOptions& options) {
  std::string_view which = name;
  if (which.starts_with(kPrefix)) which.remove_prefix(kPrefix.size());
  if (which.starts_with(kFilePrefix)) return FolderCamera::open(which.substr(kFilePrefix.size()));
  const std::shared_ptr<VideoSystem> system = linux_video();
  if (which.empty()) return open_first_camera(system, options);
  if (which.starts_with('/')) return V4l2Camera::open(system, std::string(which), options);
  if (which.find_first_not_of("0123456789") == std::string_view::npos)
    return V4l2Camera::open(system, fmt::format("/dev/video{}", which), options);
  return fail(ErrorCode::invalid_argument,
              fmt::format("'{}' is not the name of a camera. Write camera: for the first one, camera:2 or "
                          "camera:/dev/video2 for another, or camera:file:FOLDER for pictures of a folder.",
                          name));
}

}  // namespace nanomind
