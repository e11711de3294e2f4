// SPDX-License-Identifier: Apache-2.0
#include "base/file_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nanomind {

std::unexpected<Error> system_error(const std::string& what, const std::filesystem::path& path, int code) {
  ErrorCode kind = ErrorCode::io;
  if (code == ENOENT || code == ENOTDIR) kind = ErrorCode::not_found;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) kind = ErrorCode::no_space;
  return fail(kind, what + " " + path.string() + ": " + std::strerror(code) + ".");
}

int reserve_bytes(int fd, uint64_t bytes) {
  const int code = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  return code == EOPNOTSUPP || code == EINVAL ? 0 : code;
}

int write_bytes(int fd, uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return 0;
}

int read_bytes(int fd, uint64_t offset, std::span<std::byte> data, size_t& read) {
  read = 0;
  while (read < data.size()) {
    const ssize_t n = ::pread(fd, data.data() + read, data.size() - read, static_cast<off_t>(offset + read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) break;
    read += static_cast<size_t>(n);
  }
  return 0;
}

Result<void> commit_file(int fd, const std::filesystem::path& from, const std::filesystem::path& to,
                         const std::filesystem::path& shown) {
  if (::fsync(fd) != 0) return system_error("Cannot write", shown, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) return system_error("Cannot rename to", to, errno);
  ::close(fd);
  // The name itself becomes durable with its directory; a failure here costs at most this file after a power cut.
  const std::filesystem::path directory = to.has_parent_path() ? to.parent_path() : ".";
  if (const int dir = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
  return {};
}

}  // namespace nanomind
