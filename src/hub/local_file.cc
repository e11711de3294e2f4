// SPDX-License-Identifier: Apache-2.0
#include "hub/local_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "format/gguf.h"
#include "format/gguf_split.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = 4 << 20;

// Calls `take` with the file's bytes block by block.
template <typename Take>
Result<void> read_blocks(std::span<const std::byte> bytes, PullStage stage, const std::string& label,
                         const PullOptions& options, const Take& take) {
  for (size_t done = 0; done < bytes.size();) {
    if (options.stop.stop_requested()) return fail(ErrorCode::cancelled, "Stopped on request.");
    const auto block = bytes.subspan(done, std::min(kBlockBytes, bytes.size() - done));
    TRY(take(block));
    done += block.size();
    if (options.progress) options.progress({.stage = stage, .done = done, .total = bytes.size(), .source = label});
  }
  return {};
}

// True when the link was made; false when the bytes have to be copied.
bool link_in(const fs::path& source, const fs::path& target) {
  // Aside first, because a link does not replace what is there.
  const fs::path aside = target.string() + ".partial";
  ::unlink(aside.c_str());
  if (::link(source.c_str(), aside.c_str()) != 0) return false;
  if (::rename(aside.c_str(), target.c_str()) == 0) {
    ::unlink(aside.c_str());  // rename does nothing if both are the same file already
    return true;
  }
  ::unlink(aside.c_str());
  return false;
}

}  // namespace

Result<std::string> hash_file(const fs::path& path, const std::string& label, const PullOptions& options) {
  const MappedFile file = TRY(MappedFile::open(path));
  Sha256 hash;
  TRY(read_blocks(file.bytes(), PullStage::verifying, label, options,
                  [&](std::span<const std::byte> block) -> Result<void> {
                    hash.update(block);
                    return {};
                  }));
  return hex(hash.finish());
}

Result<std::string> import_file(const fs::path& source, const PullTarget& target, const Store& store,
                                const PullOptions& options) {
  std::error_code error;
  const fs::path real = fs::canonical(source, error);
  if (error) return fail(ErrorCode::not_found, fmt::format("There is no file {}.", source.string()));
  const fs::path path = store.path_of(target.file);
  if (part_names(real).size() > 1) {
    const std::vector<fs::path> parts = TRY(find_parts(real));
    TRY(join_parts(parts, path));
    return hash_file(path, source.string(), options);
  }
  const GgufFile gguf = TRY(GgufFile::open(real));
  const std::string label = source.string();
  if (link_in(real, path)) return hash_file(path, label, options);

  PartialFile file = TRY(PartialFile::open(path, "file"));
  TRY(file.restart(""));
  auto copied = read_blocks(gguf.bytes(), PullStage::copying, label, options,
                            [&](std::span<const std::byte> block) { return file.append(block); });
  if (!copied) {
    file.discard();  // the source is still there; a part of a copy is worth nothing
    return std::unexpected(std::move(copied).error());
  }
  std::string sha256 = TRY(file.sha256());
  TRY(file.publish());
  return sha256;
}

}  // namespace nanomind
