// SPDX-License-Identifier: Apache-2.0
#include "media/camera/folder_camera.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mapped_file.h"
#include "media/decode.h"

namespace nanomind {
namespace {

bool is_picture(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const auto file = MappedFile::open(path);
  if (!file) return false;
  switch (sniff(file->bytes())) {
    case ImageFormat::jpeg:
    case ImageFormat::png:
    case ImageFormat::webp:
    case ImageFormat::gif:
    case ImageFormat::bmp:
    case ImageFormat::pnm: return true;
    default: return false;
  }
}

}  // namespace

Result<std::unique_ptr<Camera>> FolderCamera::open(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (is_picture(entry->path())) files.push_back(entry->path());
  if (error) {
    return fail(ErrorCode::not_found,
                fmt::format("Cannot read the folder {} in place of a camera: {}.", folder.string(), error.message()));
  }
  if (files.empty())
    return fail(ErrorCode::not_found,
                fmt::format("There are no pictures in {} to take as a camera's.", folder.string()));
  std::ranges::sort(files);
  return std::unique_ptr<Camera>(new FolderCamera(folder, std::move(files)));
}

Result<std::optional<Frame>> FolderCamera::take(const std::atomic<bool>* cancel) {
  if (cancel != nullptr && *cancel) return fail(ErrorCode::cancelled, "Stopped on request.");
  if (next_ == files_.size()) return std::nullopt;
  const std::filesystem::path& path = files_[next_++];
  const auto file = MappedFile::open(path);
  if (!file) return fail(ErrorCode::corrupt, file.error().message);
  auto image = decode_image(file->bytes());
  if (!image) return fail(ErrorCode::corrupt, path.string() + ": " + image.error().message);
  return Frame{.file = {file->bytes().begin(), file->bytes().end()}, .image = std::move(*image)};
}

std::string FolderCamera::description() const {
  return fmt::format("{} pictures of {}", files_.size(), folder_.string());
}

}  // namespace nanomind
