// SPDX-License-Identifier: Apache-2.0
#include "runtime/limits.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <utility>

namespace nanomind {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Four independent sums keep enough loads in flight.
uint64_t sum_words(const std::byte* data, size_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t sums[4] = {};
  for (size_t i = 0; i + 4 <= bytes / 8; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) sums[lane] += words[i + lane];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

void ReadProbe::Unmap::operator()(std::byte* data) const { munmap(data, bytes); }

ReadProbe::ReadProbe(std::unique_ptr<std::byte, Unmap> data, size_t bytes, int threads)
    : data_(std::move(data)), bytes_(bytes), pool_(std::make_unique<ThreadPool>(threads)) {}

Result<ReadProbe> ReadProbe::create(size_t bytes, int threads) {
  bytes = (bytes + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("Measuring the read bandwidth needs {} MiB of memory, which cannot be had.", bytes >> 20));
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  ReadProbe probe({static_cast<std::byte*>(data), Unmap{bytes}}, bytes, threads);
  // Written once: pages that were never touched all share one page of zeros.
  probe.pool_->for_each(static_cast<int64_t>(bytes / kChunkBytes), [&](int64_t i) {
    auto* words = reinterpret_cast<uint64_t*>(probe.data_.get() + static_cast<size_t>(i) * kChunkBytes);
    std::iota(words, words + kChunkBytes / 8, static_cast<uint64_t>(i));
  });
  return probe;
}

double ReadProbe::measure() {
  std::atomic<uint64_t> total{0};  // keeps the reads from being optimised away
  const auto start = std::chrono::steady_clock::now();
  pool_->for_each(static_cast<int64_t>(bytes_ / kChunkBytes), [&](int64_t i) {
    total.fetch_add(sum_words(data_.get() + static_cast<size_t>(i) * kChunkBytes, kChunkBytes),
                    std::memory_order_relaxed);
  });
  const double seconds = seconds_since(start);
  pool_->rest();
  CHECK(total.load() != 0);
  return static_cast<double>(bytes_) / seconds / 1e9;
}

}  // namespace nanomind
