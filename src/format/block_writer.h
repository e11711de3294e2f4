// SPDX-License-Identifier: Apache-2.0
// Gathers pieces of a file, which come in any order and from several threads, into blocks of the size of a large page,
// and writes each block when it is whole. Recent file systems cache what is written so in large pages, and a mapping of
// these costs the processor few of the address translations that small pages do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace nanomind {

class BlockWriter {
 public:
  static constexpr uint64_t kBlockBytes = 2 << 20;
  // May be called from several threads at once, with different ranges.
  using Write = std::function<Result<void>(uint64_t offset, std::span<const std::byte> bytes)>;

  // A file of so many bytes.
  BlockWriter(uint64_t file_bytes, Write write) : file_bytes_(file_bytes), write_(std::move(write)) {}

  // Bytes for `offset`, each of which comes once. Any thread. Errors: those of `write`.
  Result<void> put(uint64_t offset, std::span<const std::byte> piece);
  // Writes the blocks of which some bytes have not come, with zeros for these. Once, after all pieces.
  Result<void> finish();

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    uint64_t filled = 0;
  };
  uint64_t size_of(uint64_t block) const { return std::min(kBlockBytes, file_bytes_ - block * kBlockBytes); }
  std::byte* open(uint64_t block);
  // The block, if these bytes were its last.
  Block fill(uint64_t block, uint64_t bytes);

  uint64_t file_bytes_;
  Write write_;
  std::mutex mutex_;                                 // of what follows
  std::map<uint64_t, Block> open_;                   // by number
  std::vector<std::unique_ptr<std::byte[]>> spare_;  // filled with zeros when used again
};

}  // namespace nanomind
