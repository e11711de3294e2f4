// SPDX-License-Identifier: Apache-2.0
// The cache of keys and values: one buffer of equal blocks of kKvBlockTokens tokens, handed out to sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace nanomind {

class KvCache {
 public:
  // Allocates all blocks at once; nothing is allocated afterwards.
  static Result<KvCache> create(Device& device, size_t block_bytes, int64_t blocks);

  // A free block, or out_of_memory.
  Result<int32_t> acquire();
  void release(int32_t block);
  size_t free_blocks() const { return free_.size(); }

  Buffer& buffer() { return *buffer_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  std::vector<int32_t> free_;
};

}  // namespace nanomind
