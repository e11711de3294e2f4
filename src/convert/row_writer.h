// SPDX-License-Identifier: Apache-2.0
// Writes a tensor's rows into a GGUF file in the type that it shall have, in pieces, by all threads of a pool.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "base/result.h"
#include "base/thread_pool.h"
#include "format/gguf_writer.h"

namespace nanomind {

struct WriteOptions {
  ThreadPool& pool;
  std::function<void(uint64_t done, uint64_t total)> progress = {};  // bytes written; from the calling thread
  std::stop_token stop = {};                                         // on request: cancelled, and no file appears
  uint64_t checkpoint_bytes = 32 << 20;                              // after which what is written can be taken up
};

// Rows [first, first + count) as floats; called from several threads.
using ReadRows = std::function<void(int64_t first, int64_t count, std::span<float> out)>;

// Errors: corrupt for numbers that are not finite or too large for halves, cancelled, and those of the writer.
Result<void> write_rows(GgufWriter& writer, size_t index, const GgufTensorSpec& spec, const ReadRows& read,
                        const WriteOptions& options);

}  // namespace nanomind
