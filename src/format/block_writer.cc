// SPDX-License-Identifier: Apache-2.0
#include "format/block_writer.h"

#include <cstring>

namespace nanomind {

Result<void> BlockWriter::put(uint64_t offset, std::span<const std::byte> piece) {
  CHECK(offset + piece.size() <= file_bytes_);
  while (!piece.empty()) {
    const uint64_t block = offset / kBlockBytes, within = offset % kBlockBytes;
    const auto part = piece.first(std::min<uint64_t>(piece.size(), kBlockBytes - within));
    std::memcpy(open(block) + within, part.data(), part.size());
    if (Block whole = fill(block, part.size()); whole.bytes != nullptr) {
      TRY(write_(block * kBlockBytes, {whole.bytes.get(), size_of(block)}));
      const std::lock_guard lock(mutex_);
      spare_.push_back(std::move(whole.bytes));
    }
    offset += part.size();
    piece = piece.subspan(part.size());
  }
  return {};
}

Result<void> BlockWriter::finish() {
  for (const auto& [block, content] : open_) TRY(write_(block * kBlockBytes, {content.bytes.get(), size_of(block)}));
  open_.clear();
  return {};
}

std::byte* BlockWriter::open(uint64_t block) {
  const std::lock_guard lock(mutex_);
  Block& content = open_[block];
  if (content.bytes == nullptr && !spare_.empty()) {
    content.bytes = std::move(spare_.back());
    spare_.pop_back();
    std::memset(content.bytes.get(), 0, kBlockBytes);
  }
  if (content.bytes == nullptr) content.bytes = std::make_unique<std::byte[]>(kBlockBytes);
  return content.bytes.get();
}

BlockWriter::Block BlockWriter::fill(uint64_t block, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(block);
  found->second.filled += bytes;
  if (found->second.filled < size_of(block)) return {};
  Block whole = std::move(found->second);
  open_.erase(found);
  return whole;
}

}  // namespace nanomind
