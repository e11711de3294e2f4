// SPDX-License-Identifier: Apache-2.0
// What files that are written share: whole reads and writes of a file descriptor, and the system's reasons as errors.
// For this folder and whoever keeps a descriptor of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace nanomind {

// "<what> <path>: <reason of errno `code`>.", as not_found, no_space or io.
std::unexpected<Error> system_error(const std::string& what, const std::filesystem::path& path, int code);

// The functions below return 0 or an errno.

// Reserves bytes on disk. File systems without preallocation count as having room: they report a full disk on write.
int reserve_bytes(int fd, uint64_t bytes);
int write_bytes(int fd, uint64_t offset, std::span<const std::byte> data);
// Less is read, and counted in `read`, where the file ends.
int read_bytes(int fd, uint64_t offset, std::span<std::byte> data, size_t& read);

// Syncs and closes `fd`, whose file has the name `from`, and gives it the name `to`; the descriptor is only closed when
// all went well. `from` is named in errors as `shown`.
Result<void> commit_file(int fd, const std::filesystem::path& from, const std::filesystem::path& to,
                         const std::filesystem::path& shown);

}  // namespace nanomind
