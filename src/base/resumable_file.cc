// SPDX-License-Identifier: Apache-2.0
#include "base/resumable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/file_io.h"

namespace nanomind {
Result<ResumableFile> ResumableFile::open(const std::filesystem::path& target) {
  const std::string partial = target.string() + ".partial";
  while (true) {
    const int fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return system_error("Cannot create", partial, errno);
    ResumableFile file(fd, partial, target);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      return fail(ErrorCode::invalid_argument,
                  target.string() + " is being written by another program. Wait for it, or choose another name.");
    }
    // Between opening and locking, another process may have given the file its final name.
    struct stat opened{}, named{};
    if (::fstat(fd, &opened) != 0) return system_error("Cannot read", partial, errno);
    if (::stat(partial.c_str(), &named) == 0 && opened.st_ino == named.st_ino) return file;
  }
}

ResumableFile::ResumableFile(int fd, std::filesystem::path partial, std::filesystem::path target)
    : fd_(fd), partial_(std::move(partial)), target_(std::move(target)) {}

ResumableFile::ResumableFile(ResumableFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      leftover_(other.leftover_),
      partial_(std::move(other.partial_)),
      target_(std::move(other.target_)) {}

ResumableFile& ResumableFile::operator=(ResumableFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(leftover_, other.leftover_);
  std::swap(partial_, other.partial_);
  std::swap(target_, other.target_);
  return *this;
}

ResumableFile::~ResumableFile() {
  if (fd_ < 0) return;
  if (leftover_ == Leftover::goes) ::unlink(partial_.c_str());
  ::close(fd_);
}

Result<void> ResumableFile::reserve(uint64_t bytes) {
  if (const int code = reserve_bytes(fd_, bytes)) return system_error("Cannot reserve space for", target_, code);
  return {};
}

Result<void> ResumableFile::write_at(uint64_t offset, std::span<const std::byte> data) {
  if (const int code = write_bytes(fd_, offset, data)) return system_error("Cannot write", partial_, code);
  return {};
}

Result<size_t> ResumableFile::read_at(uint64_t offset, std::span<std::byte> data) const {
  size_t read = 0;
  if (const int code = read_bytes(fd_, offset, data, read)) return system_error("Cannot read", partial_, code);
  return read;
}

Result<void> ResumableFile::truncate(uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return system_error("Cannot write", partial_, errno);
  return {};
}

Result<void> ResumableFile::sync() {
  if (::fdatasync(fd_) != 0) return system_error("Cannot write", partial_, errno);
  return {};
}

Result<void> ResumableFile::commit() {
  TRY(commit_file(fd_, partial_, target_, partial_));
  fd_ = -1;
  return {};
}

}  // namespace nanomind
