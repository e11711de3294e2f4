// SPDX-License-Identifier: Apache-2.0
#include "hub/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

std::unexpected<Error> file_error(const char* action, const fs::path& path) {
  const int cause = errno;
  if (cause == ENOSPC || cause == EDQUOT) {
    return fail(
        ErrorCode::no_space,
        fmt::format("The disk is full: {} could not be {}. Free some room and try again; what has come is kept.",
                    path.string(), action));
  }
  if (cause == EFBIG) {
    return fail(ErrorCode::no_space,
                fmt::format("{} is too big for its file system (FAT holds files up to 4 GB). Set NANOMIND_MODELS to a "
                            "folder on another disk.",
                            path.string()));
  }
  return fail(ErrorCode::io, fmt::format("{} could not be {}: {}.", path.string(), action, std::strerror(cause)));
}

}  // namespace

PartialFile::PartialFile(fs::path target, std::string source)
    : target_(std::move(target)),
      path_(target_.string() + ".partial"),
      state_path_(target_.string() + ".partial.json"),
      source_(std::move(source)) {}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::move(other.path_)),
      state_path_(std::move(other.state_path_)),
      source_(std::move(other.source_)),
      etag_(std::move(other.etag_)),
      size_(other.size_),
      parts_done_(other.parts_done_),
      in_parts_(other.in_parts_),
      fd_(std::exchange(other.fd_, -1)),
      hash_(std::move(other.hash_)) {}

PartialFile::~PartialFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<PartialFile> PartialFile::open(const fs::path& target, std::string_view source) {
  PartialFile file(target, std::string(source));
  std::ifstream stream(file.state_path_);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) return file;
  const auto state = parse_json(text.str());
  if (!state || json_text(*state, "source") != file.source_) return file;
  std::error_code error;
  const uint64_t bytes = fs::file_size(file.path_, error);
  if (error) return file;
  file.size_ = bytes;
  file.etag_ = json_text(*state, "etag").value_or("");
  if (const auto part_bytes = json_count(*state, "part_bytes")) {
    file.in_parts_ = true;
    // A file shorter than its whole parts lost bytes in a crash: nothing of it can be trusted.
    file.size_ = *part_bytes <= bytes ? *part_bytes : 0;
    file.parts_done_ = *part_bytes <= bytes ? json_count(*state, "parts_done").value_or(0) : 0;
  }
  return file;
}

Result<void> PartialFile::open_for_append() {
  if (fd_ >= 0) return {};
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) return file_error("opened", path_);
  if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0) return file_error("cut", path_);
  hash_ = std::make_unique<Sha256>();
  std::vector<std::byte> block(1 << 20);
  for (uint64_t offset = 0; offset < size_;) {
    const ssize_t got =
        ::pread(fd_, block.data(), std::min<uint64_t>(block.size(), size_ - offset), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return file_error("read", path_);
    hash_->update(std::span(block).first(static_cast<size_t>(got)));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Result<void> PartialFile::restart(std::string_view etag) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  size_ = 0;
  parts_done_ = 0;
  in_parts_ = false;
  etag_ = etag;
  TRY(open_for_append());
  return save_state();
}

Result<void> PartialFile::append(std::span<const std::byte> bytes) {
  TRY(open_for_append());
  for (std::span<const std::byte> rest = bytes; !rest.empty();) {
    const ssize_t put = ::pwrite(fd_, rest.data(), rest.size(), static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return file_error("written", path_);
    hash_->update(rest.first(static_cast<size_t>(put)));
    size_ += static_cast<uint64_t>(put);
    rest = rest.subspan(static_cast<size_t>(put));
  }
  return {};
}

Result<void> PartialFile::complete_part(uint64_t parts) {
  TRY(open_for_append());
  if (::fdatasync(fd_) != 0) return file_error("synced", path_);
  in_parts_ = true;
  parts_done_ = parts;
  return save_state();
}

Result<void> PartialFile::save_state() const {
  Json state = {{"source", source_}, {"etag", etag_}};
  if (in_parts_) {
    state["parts_done"] = parts_done_;
    state["part_bytes"] = size_;
  }
  const std::string text = json_dump(state);
  AtomicFile file = TRY(AtomicFile::create(state_path_));
  TRY(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

Result<std::string> PartialFile::sha256() {
  TRY(open_for_append());
  return hex(hash_->finish());
}

Result<void> PartialFile::publish() {
  TRY(open_for_append());
  if (::fsync(fd_) != 0) return file_error("synced", path_);
  if (::rename(path_.c_str(), target_.c_str()) != 0) return file_error("renamed", path_);
  ::close(std::exchange(fd_, -1));
  // The name survives a power cut once the folder is synced; where that is not supported nothing is lost but the name.
  if (const int folder = ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  std::error_code ignored;
  fs::remove(state_path_, ignored);
  return {};
}

void PartialFile::discard() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  size_ = 0;
  parts_done_ = 0;
  in_parts_ = false;
  etag_.clear();
  discard_partial(target_);
}

uint64_t discard_partial(const fs::path& target) {
  const fs::path path = target.string() + ".partial";
  std::error_code error;
  uint64_t bytes = fs::file_size(path, error);
  if (error || !fs::remove(path, error)) bytes = 0;
  fs::remove(target.string() + ".partial.json", error);
  return bytes;
}

}  // namespace nanomind
