// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "device/cpu/host_buffer.h"
#include "tensor/packed.h"

namespace nanomind::cpu {
namespace {

namespace fs = std::filesystem;

constexpr auto kSlice = std::chrono::milliseconds(4);  // of one measurement
constexpr int kRounds = 3;                             // of all counts in turn; the best of each counts
constexpr double kSufficient = 0.98;
constexpr double kUndisturbed = 0.9;  // share of the processors' time that a measurement must have had

constexpr int64_t kColumns = 2048, kChunkGroups = 8;
constexpr uint64_t kSmallestBuffer = 64 << 20, kLargestBuffer = 256 << 20;

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Runs work(i) for i = 0, 1, 2 ... on `threads` threads for a slice of time, and adds up what the threads should have
// had of the processors.
class Stopwatch {
 public:
  explicit Stopwatch(ThreadPool& pool) : pool_(pool) {}

  // Calls of work per second.
  template <typename F>
  double measure(int threads, const F& work) {
    pool_.limit(threads);
    std::atomic<int64_t> next{0};
    const double used = process_seconds();
    const auto start = std::chrono::steady_clock::now();
    pool_.for_each(threads, [&](int64_t) {
      while (std::chrono::steady_clock::now() - start < kSlice) work(next.fetch_add(1, std::memory_order_relaxed));
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    used_ += process_seconds() - used;
    wanted_ += seconds * threads;
    return static_cast<double>(next.load()) / seconds;
  }
  bool undisturbed() const { return used_ >= wanted_ * kUndisturbed; }

 private:
  ThreadPool& pool_;
  double used_ = 0, wanted_ = 0;
};

// The best rate of each count over some rounds.
template <typename F>
std::vector<Rate> measure_rates(Stopwatch& watch, std::span<const int> counts, const F& work) {
  std::vector<Rate> rates;
  for (const int threads : counts) rates.push_back({threads, 0});
  for (int round = 0; round < kRounds; ++round) {
    for (Rate& rate : rates) rate.per_second = std::max(rate.per_second, watch.measure(rate.threads, work));
  }
  return rates;
}

// Single rows times a matrix of zeros that no cache holds. Nothing where there is no memory for it.
std::optional<int> measure_decode(const KernelTable& kernels, const CpuTopology& topology, ThreadPool& pool,
                                  Stopwatch& watch, std::span<const int> counts) {
  const size_t group_bytes = packed_group_bytes(DType::q4_k, kColumns);
  const uint64_t wanted = std::clamp<uint64_t>(2 * topology.cache_bytes, kSmallestBuffer, kLargestBuffer);
  const size_t chunk_bytes = group_bytes * kChunkGroups;
  const auto chunks = static_cast<int64_t>(wanted / chunk_bytes);
  auto buffer = HostBuffer::allocate(static_cast<size_t>(chunks) * chunk_bytes);
  if (!buffer) return std::nullopt;
  std::byte* weights = (*buffer)->bytes().data();
  // Written once: pages that were never touched all share one page of zeros.
  pool.limit(pool.threads());
  pool.for_each(chunks,
                [&](int64_t i) { std::memset(weights + static_cast<size_t>(i) * chunk_bytes, 0, chunk_bytes); });

  const std::vector<ActivationUnit> x(kColumns / kUnitColumns, ActivationUnit{});
  const auto rates = measure_rates(watch, counts, [&](int64_t i) {
    alignas(64) float out[kChunkGroups * kGroupRows];
    kernels.matmul[static_cast<int>(IntWeight::q4_k)](
        {.weights = weights + static_cast<size_t>(i % chunks) * chunk_bytes,
         .group_bytes = group_bytes,
         .groups = kChunkGroups,
         .blocks = kColumns / PackedQ4_K::kColumns,
         .x = x.data(),
         .x_stride = kColumns / kUnitColumns,
         .m = 1,
         .out = out,
         .out_stride = kChunkGroups * kGroupRows});
  });
  return fewest_sufficient(rates);
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<void> keep(const fs::path& path, const std::string& text) {
  std::error_code ignored;  // creating the file says what is wrong
  fs::create_directories(path.parent_path(), ignored);
  AtomicFile file = TRY(AtomicFile::create(path));
  TRY(file.write_at(0, std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace

std::vector<int> candidates(const CpuTopology& topology) {
  std::vector<int> counts;
  for (int n = 1; n < topology.threads; n += n < 4 ? 1 : n / 2 - n / 2 % 2) counts.push_back(n);
  for (size_t i = 1; i < topology.cores.size() && static_cast<int>(i) < topology.threads; ++i) {
    if (topology.cores[i].kind != topology.cores[i - 1].kind) counts.push_back(static_cast<int>(i));
  }
  counts.push_back(topology.threads);
  std::ranges::sort(counts);
  const auto repeated = std::ranges::unique(counts);
  counts.erase(repeated.begin(), repeated.end());
  return counts;
}

int fewest_sufficient(std::span<const Rate> rates) {
  const double best = std::ranges::max(rates, {}, &Rate::per_second).per_second;
  int fewest = rates.back().threads;
  for (const Rate& rate : rates) {
    if (rate.per_second >= best * kSufficient) fewest = std::min(fewest, rate.threads);
  }
  return fewest;
}

std::string machine_text(const KernelTable& kernels, const CpuTopology& topology) {
  std::string text =
      fmt::format("processor {}\nkernels {}\nat once {}\ncores", topology.model, kernels.name, topology.threads);
  for (const CpuCore& core : topology.cores) {
    text += fmt::format(" {}/{}", core.kind, fmt::join(core.processors, "+"));
  }
  return text + "\n";
}

fs::path kept_file(const fs::path& folder, const std::string& machine) {
  return folder / ("threads-" + hex(sha256(std::as_bytes(std::span(machine)))).substr(0, 12));
}

std::string to_text(const std::string& machine, ThreadCounts counts) {
  return fmt::format("nanomind threads 1\n{}decode {}\nprefill {}\n", machine, counts.decode, counts.prefill);
}

std::optional<ThreadCounts> parse(std::string_view text, const std::string& machine, int threads) {
  // Read leniently, then compared with what a result with these counts looks like.
  ThreadCounts counts;
  const size_t last_lines = text.rfind("decode ");
  if (last_lines == std::string_view::npos) return std::nullopt;
  const std::string lines(text.substr(last_lines));
  if (std::sscanf(lines.c_str(), "decode %4d\nprefill %4d\n", &counts.decode, &counts.prefill) != 2)
    return std::nullopt;
  if (std::min(counts.decode, counts.prefill) < 1 || std::max(counts.decode, counts.prefill) > threads)
    return std::nullopt;
  if (text != to_text(machine, counts)) return std::nullopt;
  return counts;
}

Calibration calibrate(const KernelTable& kernels, const CpuTopology& topology, const fs::path& folder) {
  const int all = topology.threads;
  if (all == 1) return {.threads = {1, 1}, .reason = "there is one core to use"};
  if (folder.empty()) return {.threads = {all, all}, .reason = "one for each core"};
  const std::string machine = machine_text(kernels, topology);
  const fs::path path = kept_file(folder, machine);
  if (const auto kept = parse(read_file(path), machine, all)) {
    return {.threads = *kept, .reason = "measured once, kept in " + path.string()};
  }

  ThreadPool pool(all, thread_places(topology, all));
  Stopwatch watch(pool);
  const std::vector<int> counts = candidates(topology);
  const int decode = measure_decode(kernels, topology, pool, watch, counts).value_or(all);
  constexpr int64_t kPeakRounds = 1 << 12;  // tens of microseconds
  const int prefill =
      fewest_sufficient(measure_rates(watch, counts, [&](int64_t) { (void)kernels.peak(kPeakRounds); }));
  const ThreadCounts measured{decode, prefill};
  if (!watch.undisturbed())
    return {.threads = measured, .reason = "measured now, while other programs were busy, and not kept"};
  if (const auto kept = keep(path, to_text(machine, measured)); !kept) {
    return {.threads = measured, .reason = "measured now, and at every start: " + kept.error().message};
  }
  return {.threads = measured, .reason = "measured now, kept in " + path.string()};
}

}  // namespace nanomind::cpu
