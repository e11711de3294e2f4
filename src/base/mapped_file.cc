// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/file_io.h"

namespace nanomind {
namespace {

constexpr size_t kLarge = size_t{16} << 20;
constexpr int kMostLinks = 40;  // as the system follows

// What `path` leads to, also where that is not there yet.
Result<std::filesystem::path> behind_links(std::filesystem::path path) {
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(path, error); ++links) {
    if (links == kMostLinks) return system_error("Cannot follow", path, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) return system_error("Cannot follow", path, error.value());
    path = path.parent_path() / next;
  }
  return path;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe would be waited for here; regular files take no notice of it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& target, Readers readers) {
  const std::filesystem::path real = TRY(behind_links(target));
  std::error_code error;
  if (const auto there = std::filesystem::status(real, error); exists(there) && !is_regular_file(there)) {
    return fail(ErrorCode::invalid_argument,
                target.string() + " is not a regular file, so it is not replaced. Choose another name.");
  }
  std::string name = real.string() + ".XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return system_error("Cannot create a file beside", real, errno);
  ::fchmod(fd, readers == Readers::all ? 0644 : 0600);
  return AtomicFile(fd, name, real);
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
  if (const int code = reserve_bytes(fd_, bytes)) return system_error("Cannot reserve space for", target_, code);
  return {};
}

Result<void> AtomicFile::write_at(uint64_t offset, std::span<const std::byte> data) {
  if (const int code = write_bytes(fd_, offset, data)) return system_error("Cannot write", target_, code);
  return {};
}

Result<void> AtomicFile::commit() {
  TRY(commit_file(fd_, temporary_, target_, target_));
  fd_ = -1;
  return {};
}

Result<void> AtomicFile::publish() {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return system_error("Cannot rename to", target_, errno);
  ::close(std::exchange(fd_, -1));
  return {};
}

}  // namespace nanomind
