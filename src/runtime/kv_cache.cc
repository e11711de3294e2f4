// SPDX-License-Identifier: Apache-2.0
#include "runtime/kv_cache.h"

namespace nanomind {

Result<KvCache> KvCache::create(Device& device, size_t block_bytes, int64_t blocks) {
  KvCache cache;
  cache.buffer_ = TRY(device.allocate(block_bytes * static_cast<size_t>(blocks)));
  cache.free_.reserve(static_cast<size_t>(blocks));
  for (int64_t i = blocks - 1; i >= 0; --i) cache.free_.push_back(static_cast<int32_t>(i));
  return cache;
}

Result<int32_t> KvCache::acquire() {
  if (free_.empty()) {
    return fail(ErrorCode::out_of_memory,
                "The cache of this engine is used up by its sessions; end one or choose a larger --ctx.");
  }
  const int32_t block = free_.back();
  free_.pop_back();
  return block;
}

void KvCache::release(int32_t block) { free_.push_back(block); }

}  // namespace nanomind
