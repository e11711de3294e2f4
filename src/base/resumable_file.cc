// SPDX-License-Identifier: Apache-2.0
#include "base/resumable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace nanomind {
namespace {

std::unexpected<Error> system_error(const char* what, const std::filesystem::path& path, int code) {
  ErrorCode kind = ErrorCode::io;
  if (code == ENOENT || code == ENOTDIR) kind = ErrorCode::not_found;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) kind = ErrorCode::no_space;
  return fail(kind, std::string(what) + " " + path.string() + ": " + std::strerror(code) + ".");
}

}  // namespace

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
  const int code = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  if (code == EOPNOTSUPP || code == EINVAL)
    return {};  // file systems without preallocation report a full disk on write
  if (code != 0) return system_error("Cannot reserve space for", target_, code);
  return {};
}

Result<void> ResumableFile::write_at(uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("Cannot write", partial_, errno);
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<size_t> ResumableFile::read_at(uint64_t offset, std::span<std::byte> data) const {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = ::pread(fd_, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("Cannot read", partial_, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
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
  if (::fsync(fd_) != 0) return system_error("Cannot write", partial_, errno);
  if (::rename(partial_.c_str(), target_.c_str()) != 0) return system_error("Cannot rename to", target_, errno);
  ::close(fd_);
  fd_ = -1;
  // The name itself becomes durable with its directory; a failure here costs at most this file after a power cut.
  const std::filesystem::path directory = target_.has_parent_path() ? target_.parent_path() : ".";
  if (const int dir = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
  return {};
}

}  // namespace nanomind
