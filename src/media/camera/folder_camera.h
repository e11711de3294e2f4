// SPDX-License-Identifier: Apache-2.0
// The pictures of a folder in place of a camera: what a camera has saved, or what a test wants to be seen.
#pragma once

#include <filesystem>

#include "media/camera/camera.h"

namespace nanomind {

class FolderCamera final : public Camera {
 public:
  // The files of `folder` itself that decode_image could read by their first bytes, in the order of their names. Each
  // is taken once, then there are no more. not_found where there is no such folder or none in it.
  static Result<std::unique_ptr<Camera>> open(const std::filesystem::path& folder);

  Result<std::optional<Frame>> take(const std::atomic<bool>* cancel) override;
  std::string description() const override;

 private:
  FolderCamera(std::filesystem::path folder, std::vector<std::filesystem::path> files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> files_;
  size_t next_ = 0;
};

}  // namespace nanomind
