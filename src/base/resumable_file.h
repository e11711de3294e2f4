// SPDX-License-Identifier: Apache-2.0
// A file that takes long to make: until it is complete it stands beside its place as `<target>.partial`, where a later
// run finds what an earlier one had written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace nanomind {

// One thread at a time, except write_at.
class ResumableFile {
 public:
  // With the bytes that are there already. invalid_argument while another process has it open so; else not_found, io.
  static Result<ResumableFile> open(const std::filesystem::path& target);
  ResumableFile(ResumableFile&& other) noexcept;
  ResumableFile& operator=(ResumableFile&& other) noexcept;
  ~ResumableFile();

  // Without commit the unfinished file stays (at first) or goes.
  enum class Leftover { stays, goes };
  void set_leftover(Leftover leftover) { leftover_ = leftover; }

  // Reserves `bytes` on disk now, so that a full disk is known before work begins (no_space).
  Result<void> reserve(uint64_t bytes);
  // Writes all of `data` at `offset`; may be called from several threads for different ranges.
  Result<void> write_at(uint64_t offset, std::span<const std::byte> data);
  // As many bytes from `offset` on as there are, at most data.size().
  Result<size_t> read_at(uint64_t offset, std::span<std::byte> data) const;
  Result<void> truncate(uint64_t bytes);
  // What was written is on disk, whatever happens then.
  Result<void> sync();
  // Gives the file its name: readers see the old file or the complete new one.
  Result<void> commit();

 private:
  ResumableFile(int fd, std::filesystem::path partial, std::filesystem::path target);
  int fd_ = -1;
  Leftover leftover_ = Leftover::stays;
  std::filesystem::path partial_;
  std::filesystem::path target_;
};

}  // namespace nanomind
