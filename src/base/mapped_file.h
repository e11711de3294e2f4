// SPDX-License-Identifier: Apache-2.0
// Read-only file mappings, and files that appear under their name only when they are complete.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace nanomind {

// A whole file mapped read-only; pages are shared between processes. Moves, does not copy.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;  // null for an empty file
  size_t size_ = 0;
};

// Writes beside `target` under a temporary name; `commit` syncs the bytes and renames, so readers see the old file or
// the complete new one. `publish` leaves it to the system when the bytes reach the disk: for files that are no loss,
// and whose readers notice if a power cut tore them. Without commit the temporary file is removed. One thread at a
// time, except write_at.
//
// A target that is a link stays one, and what it leads to is written. One that is there and no regular file is refused
// (invalid_argument): a pipe or a device would be replaced.
class AtomicFile {
 public:
  enum class Readers { all, owner };
  static Result<AtomicFile> create(const std::filesystem::path& target, Readers readers = Readers::all);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Reserves `bytes` on disk now, so that a full disk is known before work begins (no_space).
  Result<void> reserve(uint64_t bytes);
  // Writes all of `data` at `offset`; may be called from several threads for different ranges.
  Result<void> write_at(uint64_t offset, std::span<const std::byte> data);
  Result<void> commit();
  Result<void> publish();

 private:
  AtomicFile(int fd, std::filesystem::path temporary, std::filesystem::path target);
  void abandon();
  int fd_ = -1;
  std::filesystem::path temporary_;
  std::filesystem::path target_;
};

}  // namespace nanomind
