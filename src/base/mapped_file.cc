// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace nanomind {
namespace {

std::unexpected<Error> system_error(const std::string& what, const std::filesystem::path& path, int code) {
  ErrorCode kind = ErrorCode::io;
  if (code == ENOENT || code == ENOTDIR) kind = ErrorCode::not_found;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) kind = ErrorCode::no_space;
  return fail(kind, what + " " + path.string() + ": " + std::strerror(code) + ".");
}

constexpr size_t kLarge = size_t{16} << 20;

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error("Cannot open", path, errno);
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    const int code = errno;
    ::close(fd);
    return system_error("Cannot read the size of", path, code);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::invalid_argument, path.string() + " is not a regular file.");
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    ::close(fd);
    return MappedFile(nullptr, 0);
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int code = errno;
  ::close(fd);
  if (data == MAP_FAILED) return system_error("Cannot map", path, code);
  // Large pages where the file system has them (ext4 and XFS of recent kernels): fewer faults and TLB misses.
  if (size >= kLarge) ::madvise(data, size, MADV_HUGEPAGE);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& target) {
  std::string name = target.string() + ".XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return system_error("Cannot create a file beside", target, errno);
  ::fchmod(fd, 0644);
  return AtomicFile(fd, name, target);
}

AtomicFile::AtomicFile(int fd, std::filesystem::path temporary, std::filesystem::path target)
    : fd_(fd), temporary_(std::move(temporary)), target_(std::move(target)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), temporary_(std::move(other.temporary_)), target_(std::move(other.target_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(temporary_, other.temporary_);
  std::swap(target_, other.target_);
  return *this;
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::abandon() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
  fd_ = -1;
}

Result<void> AtomicFile::reserve(uint64_t bytes) {
  const int code = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  if (code == EOPNOTSUPP || code == EINVAL)
    return {};  // file systems without preallocation report a full disk on write
  if (code != 0) return system_error("Cannot reserve space for", target_, code);
  return {};
}

Result<void> AtomicFile::write_at(uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("Cannot write", target_, errno);
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<void> AtomicFile::commit() {
  if (::fsync(fd_) != 0) return system_error("Cannot write", target_, errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return system_error("Cannot rename to", target_, errno);
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
