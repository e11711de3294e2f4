// SPDX-License-Identifier: Apache-2.0
// How fast this machine reads memory, measured where a benchmark runs: the bound of decoding. (That of reading prompts
// is Device::measure_peak.)
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"

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

}  // namespace nanomind
