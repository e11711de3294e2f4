// SPDX-License-Identifier: Apache-2.0
// What this machine could do at best, measured where a benchmark runs, so that a speed can be told as a share of it:
// decode is bounded by reading memory, prefill by multiplying matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"

namespace nanomind {

// Streams a block of memory that is far larger than the caches through all threads. Not for several threads at once.
class ReadProbe {
 public:
  // `bytes` should be 512 MiB or more; out_of_memory when they cannot be had.
  static Result<ReadProbe> create(size_t bytes, int threads);
  // GB/s (10^9) of one pass.
  double measure();

 private:
  struct Unmap {
    size_t bytes;
    void operator()(std::byte* data) const;
  };
  ReadProbe(std::unique_ptr<std::byte, Unmap> data, size_t bytes, int threads);

  std::unique_ptr<std::byte, Unmap> data_;
  size_t bytes_;
  std::unique_ptr<ThreadPool> pool_;
};

// One large product of 8-bit weights that stay in the caches, run through a device like any model's.
class ProductProbe {
 public:
  // `device` outlives the probe.
  static Result<ProductProbe> create(Device& device);
  // 10^12 operations per second (2 per weight and row) of one product.
  Result<double> measure();

 private:
  ProductProbe() = default;

  std::vector<std::unique_ptr<Buffer>> weights_;  // zeros
  std::vector<std::span<const std::byte>> views_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Buffer> cache_;
};

}  // namespace nanomind
